package vars

import (
	"debug/dwarf"
	"fmt"

	"kprobe/fetch"
)

// counted describes an array whose number of elements the program computes, such as C's arrays
// of variable length.
func (v value) counted(out fetch.Variable) (fetch.Variable, bool) {
	if v.p.kind != inMemory {
		return out, false
	}
	n, ok := v.f.elements(v.t)
	elem, stride := v.f.element(v.t)
	if !ok || stride <= 0 || stride > fetch.MaxString {
		return out, false
	}
	c := &fetch.Content{Kind: fetch.ContentSequence, Name: v.t.name, Stride: stride, Ptr: fetch.Trail{}, Count: fetch.Trail{}, Elem: v.f.elem(elem)}
	if c.Elem == nil || !c.Copied() {
		return out, false
	}
	length := n.whole()
	out.Type = fetch.Type{Base: fetch.Container, Size: 8, Layout: &fetch.Layout{Name: v.t.name, Content: c}}
	out.Len, out.LenOwn, out.Unit = &length, n.own, int(stride)
	out.Chain, out.Own = v.p.sym.whole(), v.p.sym.own
	return out, true
}

// unbounded returns the error for an array of unknown length.
func (v value) unbounded(name string) error {
	return fmt.Errorf("the number of elements of %s is not known: fetch single elements, %s[N]", v.t, name)
}

// hasNone reports whether an array is declared to have no elements.
func (f *frame) hasNone(t ctype) bool {
	if t.kind != kindArray {
		return false
	}
	at := t.dim
	for c := range t.entry.Children() {
		if c.Tag() != dwarf.TagSubrangeType {
			continue
		}
		if at--; at >= 0 {
			continue
		}
		if n, ok := c.Int(dwarf.AttrCount); ok {
			return n == 0
		}
		n, ok := c.Int(dwarf.AttrUpperBound)
		low, _ := c.Int(dwarf.AttrLowerBound)
		return ok && n == low-1
	}
	return false
}

// elements returns the number of elements in an array's first dimension, given by an
// expression or by a variable.
func (f *frame) elements(t ctype) (sym, bool) {
	at := t.dim
	for c := range t.entry.Children() {
		if c.Tag() != dwarf.TagSubrangeType {
			continue
		}
		if at--; at >= 0 {
			continue
		}
		for _, a := range [...]struct {
			attr dwarf.Attr
			more int64
		}{{dwarf.AttrCount, 0}, {dwarf.AttrUpperBound, 1}} {
			v, has := c.Val(a.attr)
			if !has {
				continue
			}
			if v.IsBlock() {
				x := evaluator{f: f, unit: c.Unit()}
				p, err := x.location(v.B)
				if err != nil || p.kind != inMemory && p.kind != isValue {
					return sym{}, false
				}
				return p.sym.add(a.more), true // the expression's result is the number
			}
			r, isRef := c.RefTo(a.attr)
			e, found := r.Entry()
			if !isRef || !found {
				return sym{}, false
			}
			n, err := f.load(e)
			if err != nil || n.t.kind != kindInt && n.t.kind != kindUint {
				return sym{}, false
			}
			s, err := n.number()
			return s.add(a.more), err == nil
		}
	}
	return sym{}, false
}

// number returns the value of an integer, extended to 64 bits by its sign.
func (v value) number() (sym, error) {
	w, err := v.widened(ctype{kind: kindInt, size: 9})
	return w.p.sym, err
}
