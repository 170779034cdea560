package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/symbols/debuginfo"
)

// Go keeps variables that escape on the heap. Debug information then has &NAME, which leads to
// the variable. For a parameter it also has NAME, the place where it was passed. That copy isn't
// kept up to date.

// escaped reports whether an entry is &NAME.
func (f *frame) escaped(e *debuginfo.Entry) bool {
	name := e.Name()
	return len(name) > 1 && name[0] == '&' && f.language(*e).IsGo()
}

// sourceName returns a variable's name as its source has it.
func (f *frame) sourceName(e *debuginfo.Entry) string {
	if f.escaped(e) {
		return e.Name()[1:]
	}
	return e.Name()
}

// sourceType returns a variable's type as its source has it.
func (f *frame) sourceType(e *debuginfo.Entry) (ctype, error) {
	t, err := f.typeOf(e)
	if err == nil && f.escaped(e) && !t.elem.IsZero() {
		return f.resolve(t.elem), nil
	}
	return t, err
}

// onHeap finds the &NAME of a parameter that has escaped.
func (f *frame) onHeap(e *debuginfo.Entry) (home debuginfo.Entry, ok bool) {
	if e.Tag() != dwarf.TagFormalParameter || !f.language(*e).IsGo() {
		return home, false
	}
	for _, s := range f.scopes {
		own := false
		for c := range s.Children() {
			own = own || c.Ref() == e.Ref()
			if c.Tag() == dwarf.TagVariable && strings.TrimPrefix(c.Name(), "&") == e.Name() && f.escaped(&c) {
				home, ok = c, true
			}
		}
		if own {
			return home, ok
		}
		ok = false
	}
	return home, false
}

// fromHeap returns the variable that &NAME leads to.
func (f *frame) fromHeap(v value) (value, error) {
	if v.t.kind != kindPointer {
		return v, errBadExpression
	}
	return v.deref()
}
