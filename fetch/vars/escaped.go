package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// Go's variables that escape are on the heap. Debug information then has &NAME, which leads
// there. For a parameter it also has NAME: where it was passed, which nothing keeps up to date.

// escaped reports &NAME.
func (f *frame) escaped(e *debuginfo.Entry) bool {
	name := e.Name()
	return len(name) > 1 && name[0] == '&' && f.language(*e).IsGo()
}

// sourceName is the name that a variable has in its source.
func (f *frame) sourceName(e *debuginfo.Entry) string {
	if f.escaped(e) {
		return e.Name()[1:]
	}
	return e.Name()
}

// sourceType is the type that a variable has in its source.
func (f *frame) sourceType(e *debuginfo.Entry) (ctype, error) {
	t, err := f.typeOf(e)
	if err == nil && f.escaped(e) && !t.elem.IsZero() {
		return f.resolve(t.elem), nil
	}
	return t, err
}

// onHeap finds &NAME of a parameter that has escaped.
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

// fromHeap is the variable that &NAME, which lies at a place, leads to.
func (f *frame) fromHeap(v value) (value, error) {
	if v.t.kind != kindPointer {
		return v, errBadExpression
	}
	return v.deref()
}

// attrGoClosureOffset is where in a closure a variable of the function around it is,
// or its address (cmd/internal/dwarf, from Go 1.23 on).
const attrGoClosureOffset dwarf.Attr = 0x2907

// isCaptured reports a variable of the function around a closure.
func (f *frame) isCaptured(e *debuginfo.Entry) bool {
	_, ok := e.Val(attrGoClosureOffset)
	return ok && f.language(*e).IsGo()
}

// captured returns where a variable of the surrounding function is at a closure's entry: in the
// closure, to which rdx leads (abi-internal.md). For &NAME the closure has either the address
// or the contents; debug information doesn't say which.
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
