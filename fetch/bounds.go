package fetch

import (
	"strconv"
	"strings"
)

// takeBounds takes elements=N and depth=N off the words after the place, and the suffix stack
// between them.
func (d *Def) takeBounds(l *line, words []word) ([]word, *SyntaxError) {
	for len(words) > 0 {
		last := words[len(words)-1]
		name, number, _ := strings.Cut(last.text, "=")
		to, most := &d.Limit.Elements, MaxElements
		switch {
		case !isDecimal(number):
			name = ""
		case name == "depth":
			to, most = &d.Limit.Depth, MaxDepth
		}
		if name != "elements" && name != "depth" || *to != 0 {
			if d.Stack != 0 {
				return words, nil
			}
			rest, e := d.takeStack(l, words)
			if e != nil || len(rest) == len(words) {
				return rest, e
			}
			words = rest
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > most {
			return nil, l.err(BadArrayNum, last.col+len(name)+1, name+" takes a number from 1 to "+strconv.Itoa(most))
		}
		*to = uint16(n)
		words = words[:len(words)-1]
	}
	return words, nil
}

// boundsSuffix is what String writes.
func (d *Def) boundsSuffix() string {
	s := ""
	if n := d.Limit.Elements; n != 0 {
		s += " elements=" + strconv.Itoa(int(n))
	}
	if n := d.Limit.Depth; n != 0 {
		s += " depth=" + strconv.Itoa(int(n))
	}
	return s
}
