package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/fetch"
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

// attrGoClosureOffset is the offset in a closure at which a captured variable, or its address,
// lies (cmd/internal/dwarf, from Go 1.23 on).
const attrGoClosureOffset dwarf.Attr = 0x2907

// isCaptured reports whether a variable belongs to the function around a closure.
func (f *frame) isCaptured(e *debuginfo.Entry) bool {
	_, ok := e.Val(attrGoClosureOffset)
	return ok && f.language(*e).IsGo()
}

// captured returns where a variable of the surrounding function is at a closure's entry: in
// the closure, whose address is in rdx (abi-internal.md). For &NAME the closure has either the
// address or the contents; debug information doesn't say which.
func (f *frame) captured(e *debuginfo.Entry) (place, bool) {
	off, ok := e.Int(attrGoClosureOffset)
	if !ok || off <= 0 || f.escaped(e) || !f.atEntry() || !f.isGoFunc() || len(f.scopes) == 0 {
		return place{}, false
	}
	for c := range f.fn.Children() {
		if c.Ref() == e.Ref() {
			return place{kind: inMemory, sym: register(fetch.DX).add(off)}, true
		}
	}
	return place{}, false
}
