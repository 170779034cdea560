package vars

import (
	"strconv"
	"strings"

	"kprobe/fetch"
)

// pair describes the element of a map.
func (f *frame) pair(t ctype) *fetch.Content {
	t = f.whole(t)
	out := &fetch.Content{Kind: fetch.ContentStruct, Name: t.name, Size: t.size}
	for _, name := range [...]string{"first", "second"} {
		w, ok := f.start(t).follow(name)
		if !ok {
			return nil
		}
		off, isConst := w.p.sym.isConst()
		e := f.referent(w.t)
		if !isConst || e == nil {
			return nil
		}
		out.Members = append(out.Members, fetch.ContentMember{Name: name, Off: int64(off), Elem: e})
	}
	return out
}

// cxxTuple collects a tuple's base classes, each of which holds one value.
func (f *frame) cxxTuple(v value, c *fetch.Content) bool {
	if w, ok := v.follow("__base_"); ok {
		v = w
	}
	off, isConst := v.p.sym.isConst()
	if !isConst {
		return false
	}
	c.Kind, c.Style = fetch.ContentStruct, fetch.StyleTuple
	c.Members = nil
	if !f.tupleLeaves(f.whole(v.t), int64(off), 0, c) {
		return false
	}
	for _, m := range c.Members {
		if m.Elem == nil {
			return false
		}
	}
	return true
}

func (f *frame) tupleLeaves(t ctype, off int64, depth int, c *fetch.Content) bool {
	if depth > maxFields {
		return false
	}
	for _, m := range f.members(t) {
		if !m.base || m.typ.kind != kindStruct {
			continue
		}
		name, args, _ := strings.Cut(m.typ.entry.Name(), "<")
		switch name {
		case "_Tuple_impl", "__tuple_impl":
			if !f.tupleLeaves(m.typ, off+m.off, depth+1, c) {
				return false
			}
		case "_Head_base", "__tuple_leaf":
			number, _, _ := strings.Cut(args, ",")
			i, err := strconv.Atoi(strings.TrimRight(number, "ULul "))
			if err != nil || i < 0 || i >= maxFields {
				return false
			}
			for len(c.Members) <= i {
				c.Members = append(c.Members, fetch.ContentMember{})
			}
			w, ok := f.start(m.typ).follow("_M_head_impl|__value_")
			e := (*fetch.Content)(nil)
			at := uint64(0)
			if ok {
				at, _ = w.p.sym.isConst()
				e = f.referent(w.t)
			} else if p, found := f.parameter(m.typ, 0); found {
				e = f.plainContent(ctype{kind: kindStruct, name: p.name, entry: p.entry}, 0, 0) // an empty class
			}
			if e == nil {
				return false
			}
			c.Members[i] = fetch.ContentMember{Off: off + m.off + int64(at), Elem: e}
		}
	}
	return true
}

// referent is elem, but for a reference it describes what the reference refers to, if that can
// be recorded.
func (f *frame) referent(t ctype) *fetch.Content {
	if t.kind == kindReference && !t.elem.IsZero() {
		if e := f.elem(f.whole(f.resolve(t.elem))); e != nil {
			return &fetch.Content{Kind: fetch.ContentPointer, Name: t.name, Size: 8, Ptr: word(0), Elem: e}
		}
	}
	return f.elem(t)
}

// cxxPointer describes a smart pointer.
func (f *frame) cxxPointer(v value, c *fetch.Content) bool {
	w, ok := v.follow("_M_ptr|__ptr_")
	if !ok {
		if w, ok = v.follow("_M_t._M_t"); ok { // a unique_ptr's pointer is the first value of a tuple
			tuple := fetch.Content{}
			if w.t = f.whole(w.t); !f.cxxTuple(w, &tuple) || len(tuple.Members) == 0 {
				return false
			}
			if w, ok = w.head(0); !ok {
				return false
			}
		}
	}
	for range 2 { // libc++ pairs the pointer with empty classes
		if ok && w.t.kind == kindStruct {
			w, ok = w.follow("__value_")
		}
	}
	if !ok || w.t.kind != kindPointer || w.t.elem.IsZero() {
		return false
	}
	c.Kind = fetch.ContentPointer
	if c.Ptr, ok = load(w); !ok {
		return false
	}
	c.Elem = f.elem(f.whole(f.resolve(w.t.elem)))
	return c.Elem != nil
}

// head returns the first value of libstdc++'s tuples.
func (v value) head(depth int) (value, bool) {
	for _, m := range v.f.members(v.t) {
		if !m.base || m.typ.kind != kindStruct || v.f.tooDeep(depth) {
			continue
		}
		w := v
		var err error
		if w.p, err = v.p.part(m.off, m.typ.size); err != nil {
			continue
		}
		w.t = m.typ
		switch name := m.typ.entry.Name(); {
		case strings.HasPrefix(name, "_Head_base<0"):
			return w.follow("_M_head_impl")
		case strings.HasPrefix(name, "_Tuple_impl<0"):
			return w.head(depth + 1)
		}
	}
	return v, false
}
