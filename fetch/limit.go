package fetch

import (
	"slices"
	"strconv"

	"kprobe/internal/quote"
)

// TextLimiter is an Env that says how many bytes of a string are shown.
type TextLimiter interface {
	// MaxText is from 1 to MaxString; 0 is MaxString.
	MaxText() int
}

// limitTexts bounds what is recorded of strings to what is shown, plus one byte, which tells
// whether there is more. A string that the filter compares is recorded as usual, because what
// is shown of it must not change what is a hit. Paths and names that only the kernel or the
// files know are not bounded, as in strace.
func (c *compiler) limitTexts() {
	l, is := c.env.(TextLimiter)
	if !is || l.MaxText() <= 0 || l.MaxText() >= MaxString {
		return
	}
	c.prog.MaxText = l.MaxText()
	for i := range c.prog.Args {
		if a := &c.prog.Args[i]; a.limited() {
			a.Limit = c.prog.MaxText + 1
		}
	}
	for q := range c.prog.Preds() {
		if q.Field == FieldArg {
			c.prog.Args[q.Arg].Limit = 0
		}
	}
}

// limited reports whether a text is one that the program's memory holds.
func (a *ArgProgram) limited() bool {
	return a.Type.Base != Container && (a.Store == StoreString || a.Store == StoreStrings || a.Store == StoreCounted)
}

// TextMax is how many bytes are recorded of a text at most.
func (a *ArgProgram) TextMax() int {
	if a.Limit > 0 && a.Limit < MaxString {
		return a.Limit
	}
	return MaxString
}

// cut shortens the strings in a value to what is shown. of is the argument.
func (p *Program) cut(of *ArgProgram, v *Value) {
	if p.MaxText == 0 {
		return
	}
	if len(v.Bytes) > p.MaxText && (of.limited() || of.Store == StoreMem || of.Store == StoreContent) {
		v.Bytes, v.Truncated = v.Bytes[:p.MaxText], true
	}
	for i := range v.Elems {
		p.cut(of, &v.Elems[i])
	}
}

// AppendCut appends a JSON string for each string that was cut in a value: its name, with
// .MEMBER and [N] for parts of a structure or an array. A comma precedes each but the first of
// all; first says whether that is still to come.
func AppendCut(dst []byte, name string, t Type, v *Value, first bool) (out []byte, still bool) {
	if l := t.Layout; !v.Fault && l != nil && l.More && !l.Text {
		if !first {
			dst = append(dst, ',')
		}
		dst, first = quote.AppendJSON(dst, name), false
	}
	switch l := t.Layout; {
	case v.Fault:
	case t.Base == Container:
		if v.Cut() {
			if !first {
				dst = append(dst, ',')
			}
			return quote.AppendJSON(dst, name), false
		}
	case t.IsText() && t.Count == 0, l != nil && l.Text && t.Count != 0:
		if v.Truncated {
			if !first {
				dst = append(dst, ',')
			}
			return quote.AppendJSON(dst, name), false
		}
	case l != nil && l.Members != nil:
		for i := range min(len(l.Members), len(v.Elems)) {
			if !l.shown(i, v) {
				continue
			}
			m := &l.Members[i]
			inner := name
			switch {
			case l.Array:
				inner += "[" + strconv.Itoa(i) + "]"
			case m.Name != "":
				inner += "." + m.Name
			}
			dst, first = AppendCut(dst, inner, m.Type, &v.Elems[i], first)
		}
	case t.Count != 0 && t.IsText():
		for i := range v.Elems {
			dst, first = AppendCut(dst, name+"["+strconv.Itoa(i)+"]", t.Elem(), &v.Elems[i], first)
		}
	}
	return dst, first
}

// partial reports a type of which not all is recorded, or part of which is so.
func (t Type) partial() bool {
	l := t.Layout
	return l != nil && (l.More || slices.ContainsFunc(l.Members, func(m Member) bool { return m.Type.partial() }))
}

// CutOf reports whether there is more of a value of a type than what was recorded.
func (t Type) CutOf(v *Value) bool { return v.Cut() || !v.Fault && t.partial() }

// Cut reports whether a text or a container in the value was cut.
func (v *Value) Cut() bool {
	return !v.Fault && (v.Truncated || slices.ContainsFunc(v.Elems, func(e Value) bool { return e.Cut() }))
}
