package fetch

import (
	"fmt"
	"strings"

	"kprobe/symbols"
)

// isAccess reports the words in front of the @ of what is watched.
func isAccess(s string) bool { return s == "" || s == "r" || s == "w" || s == "rw" }

// watched parses [r|w|rw]@ADDR|[MOD:]SYM[+|-OFFS]|VARIABLE[:LEN], with the columns
// of the kernel's trace_wprobe. Without a letter it is rw.
func (p *placeParser) watched() (symbols.Place, *SyntaxError) {
	s := p.w.text
	at := strings.IndexByte(s, '@')
	switch {
	case at < 0:
		return p.err(BadAccessFmt, 0)
	case !isAccess(s[:at]):
		return p.err(BadAccessType, 0)
	}
	out := symbols.Place{Kind: symbols.PlaceData, Access: s[:at]}
	if out.Access == "" {
		out.Access = "rw"
	}
	body := s[at+1:]
	if i := strings.LastIndexByte(body, ':'); i > 0 && body[i-1] != ':' && isDecimalLike(body[i+1:]) {
		v, ok := parseUint(body[i+1:])
		if !ok || v == 0 || v > 8 || v&(v-1) != 0 {
			return p.err(BadAccessLen, at+1+i+1)
		}
		out.Length, body = int(v), body[:i]
	}
	if body == "" || strings.ContainsFunc(body, neverInPlace) {
		return p.err(BadAccessAddr, at+1)
	}
	if isDigit(body[0]) || body == "-1" {
		v, ok := parseUint(body)
		if body == "-1" {
			v, ok = symbols.NoData, true
		}
		if !ok {
			return p.err(BadAccessAddr, at+1)
		}
		out.Value = v
		return out, nil
	}
	from := at + 1
	if i := moduleEnd(body); i > 0 {
		out.Module, body, from = body[:i], body[i+1:], from+i+1
	}
	if i := offsetAt(body); i > 0 {
		v, ok := parseInt(strings.TrimPrefix(body[i:], "+"))
		if !ok {
			return p.err(BadAccessAddr, from+i)
		}
		out.Offset, body = v, body[:i]
	}
	if !isName(body) && !plainSymbol(body) {
		return p.err(BadAccessAddr, from)
	}
	out.Symbol = body
	return out, nil
}

// isDecimalLike reports what is meant as a number behind a colon.
func isDecimalLike(s string) bool { return s != "" && isDigit(s[0]) }

// offsetAt finds the + or - in front of an offset: not that of ->, and in no
// brackets; -1 is none.
func offsetAt(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '[', '(', '<', '{':
			open++
		case ']', ')', '}':
			open--
		case '>':
			if i == 0 || s[i-1] != '-' {
				open--
			}
		case '+', '-':
			if open <= 0 && (i+1 == len(s) || s[i+1] != '>') {
				return i
			}
		}
	}
	return -1
}

// plainSymbol reports names of symbols that no expression could be, such as
// state.0 and .bss.x.
func plainSymbol(s string) bool {
	e := Expr{}
	return e.fillSymbol(s) && e.Module == "" && e.Off == 0
}

// watchName makes the name of an event that watches.
func watchName(p symbols.Place) string {
	switch {
	case p.Symbol == "" && p.Value == symbols.NoData:
		return "w_later"
	case p.Symbol == "":
		return fmt.Sprintf("w_0x%x", p.Value)
	case p.Offset != 0:
		return fmt.Sprintf("w_%s_%d", p.Symbol, p.Offset)
	}
	return "w_" + p.Symbol
}
