package fetch

import (
	"strings"

	"kprobe/symbols"
)

// Parse parses one definition: p, r, j, - and ! forms, or a bare place, which is short for "p
// PLACE". Errors are a *SyntaxError.
func Parse(text string) (*Def, error) {
	// A definition is one line, whatever whoever wrote it had in quotes.
	l := splitLine(strings.NewReplacer("\n", " ", "\r", " ").Replace(text))
	d, e := parseLine(&l)
	if e != nil {
		return nil, e
	}
	return d, nil
}

func parseLine(l *line) (*Def, *SyntaxError) {
	if len(l.words) == 0 {
		return nil, l.err(NoPlace, 0, "")
	}
	head := l.words[0]
	d := &Def{Text: l.input}
	if !isCommandWord(head.text) {
		if e := d.setPlace(l, head); e != nil {
			return nil, e
		}
		return d, d.finish(l, "", 0, l.words[1:])
	}
	if head.text[0] == '-' || head.text[0] == '!' {
		return d, d.parseDelete(l, head)
	}
	switch head.text[0] {
	case 'r':
		d.Kind = Return
	case 'j':
		d.Kind = Jprobe
	case 'w':
		d.Kind = Watch
	}
	number, name, hasName := strings.Cut(head.text[1:], ":")
	if e := d.setMaxActive(l, number, head.col+1); e != nil {
		return nil, e
	}
	if len(l.words) < 2 {
		return nil, l.err(NoPlace, l.past(), "")
	}
	if e := d.setPlace(l, l.words[1]); e != nil {
		return nil, e
	}
	if hasName {
		col := head.col + 1 + len(number) + 1
		var e *SyntaxError
		if d.Group, d.Event, e = parseName(l, name, col); e != nil {
			return nil, e
		}
	}
	return d, d.finish(l, d.Event, head.col, l.words[2:])
}

func (d *Def) setMaxActive(l *line, s string, col int) *SyntaxError {
	if s == "" {
		return nil
	}
	if d.Kind != Return {
		return l.err(BadMaxActType, col, "")
	}
	v, ok := parseUint(s)
	switch {
	case !ok || v > 1<<32-1:
		return l.err(BadMaxAct, col, "")
	case v > MaxActive:
		return l.err(MaxActTooBig, col, "")
	}
	d.MaxActive = int(v)
	return nil
}

func (d *Def) setPlace(l *line, w word) *SyntaxError {
	p := placeParser{l, w}
	if d.Kind == Watch {
		var e *SyntaxError
		d.Place, e = p.watched()
		d.placeCol, d.HasPlace = w.col, true
		return e
	}
	place, e := p.parse()
	if e != nil {
		return e
	}
	d.placeCol = w.col
	d.HasPlace = true
	if place.Return {
		if d.Kind == Jprobe {
			return l.err(BadAddrSuffix, w.col+strings.LastIndexByte(w.text, '%'), "")
		}
		if d.Kind == Entry {
			d.Kind = Return
		}
	}
	place.Return = d.Kind == Return
	if place.Kind == symbols.PlaceUSDT || place.Kind == symbols.PlaceSymbol && place.Offset != 0 {
		switch d.Kind {
		case Return:
			return l.err(BadRetprobe, w.col, "")
		case Jprobe:
			return l.err(NoFentryArgs, w.col, "")
		}
	}
	d.Place = place
	return nil
}

// parseDelete parses -:[GRP/]EVENT [PLACE [ARGS…]] and the same with ! and a
// letter before the colon.
func (d *Def) parseDelete(l *line, head word) *SyntaxError {
	d.Kind = Delete
	i := strings.IndexByte(head.text, ':')
	if i < 0 || head.text[0] == '-' && i != 1 {
		return l.err(BadProbeType, head.col, "")
	}
	var e *SyntaxError
	if d.Group, d.Event, e = parseName(l, head.text[i+1:], head.col+i+1); e != nil {
		return e
	}
	if d.Event == "" {
		return l.err(NoEventName, head.col+len(head.text), "")
	}
	d.Named = true
	if len(l.words) < 2 {
		return nil
	}
	p := placeParser{l, l.words[1]}
	if access, _, is := strings.Cut(l.words[1].text, "@"); is && isAccess(access) {
		d.Place, e = p.watched()
	} else {
		d.Place, e = p.parse()
	}
	if e != nil {
		return e
	}
	d.HasPlace, d.placeCol = true, l.words[1].col
	words, e := d.takeStack(l, l.words[2:])
	if e != nil {
		return e
	}
	for _, w := range words {
		d.DeleteArgs = append(d.DeleteArgs, w.text)
	}
	return nil
}

// finish fills in names, then parses arguments and filter.
func (d *Def) finish(l *line, event string, col int, args []word) *SyntaxError {
	d.Named = event != ""
	if d.Group == "" {
		d.Group = DefaultGroup
	}
	if d.Event == "" {
		d.Event = generatedName(d.Kind, d.Place)
	}
	if !isGoodName(d.Event) {
		return l.err(BadEventName, col, "")
	}
	args, e := d.takeBounds(l, args)
	if e != nil {
		return e
	}
	if e := d.parseArgs(l, args); e != nil {
		return e
	}
	if l.filter != nil {
		return d.parseFilter(l)
	}
	return nil
}
