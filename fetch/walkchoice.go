package fetch

import "encoding/binary"

func (w *walker) optional(c *Content, at uint64, depth int) {
	tag, ok := w.path(c.Tag, at)
	switch {
	case !ok:
		w.put(contentFault)
	case tag == 0:
		w.put(contentNone)
	case tag > 1 && c.Style != StyleIndex:
		w.put(contentInvalid)
	default:
		w.put(contentThere)
		p, ok := w.path(c.Ptr, at)
		if !ok {
			w.put(contentFault)
			return
		}
		w.value(c.Elem, p, depth)
	}
}

func (w *walker) variant(c *Content, at uint64, depth int) {
	tag, ok := w.path(c.Tag, at)
	if !ok {
		w.put(contentFault)
		return
	}
	other := -1
	for i := range c.Members {
		m := &c.Members[i]
		if len(m.Cases) == 0 {
			other = i
		}
		for _, v := range m.Cases {
			if v == tag {
				w.chosen(c, i, at, depth)
				return
			}
		}
	}
	if other >= 0 {
		w.chosen(c, other, at, depth)
		return
	}
	w.put(contentInvalid)
}

func (w *walker) chosen(c *Content, i int, at uint64, depth int) {
	w.put(contentThere, byte(i), byte(i>>8))
	w.value(c.Members[i].Elem, at+uint64(c.Members[i].Off), depth)
}

func (w *walker) pointer(c *Content, at uint64, depth int) {
	p, ok := w.path(c.Ptr, at)
	switch {
	case !ok:
		w.put(contentFault)
	case p == 0 || c.Tag != nil && !w.there(c, at):
		w.put(contentNone)
	case depth >= w.depth:
		w.put(contentCut)
	default:
		w.put(contentThere)
		p, ok := w.path(c.At, p)
		if !ok {
			w.put(contentFault)
			return
		}
		w.value(c.Elem, p, depth+1)
	}
}

// iface records Go's interface. The value of a type that is a pointer is in the
// interface, that of another one elsewhere: Content.Style says which.
func (w *walker) iface(c *Content, at uint64, depth int) {
	tab, ok := w.path(Trail{{Op: StepLoad, Size: 8}}, at)
	if ok && tab == 0 {
		w.put(contentNone)
		return
	}
	typ, ok2 := w.path(c.Tag, at)
	p, ok3 := w.path(c.Ptr, at)
	if !ok || !ok2 || !ok3 {
		w.put(contentFault)
		return
	}
	var elem *Content
	if c.Dynamic != nil {
		elem = c.Dynamic(typ)
	}
	if elem == nil {
		w.put(contentInvalid)
		return
	}
	w.put(contentThere)
	w.e.dst = binary.LittleEndian.AppendUint64(w.e.dst, typ)
	switch {
	case depth >= w.depth:
		w.put(contentCut)
	case elem.Kind == ContentPointer:
		w.value(elem, at+c.Ptr[0].Imm, depth) // the pointer and the interface are one step
	case elem.Word:
		// The word is the value.
		w.value(elem, at+c.Ptr[0].Imm, depth+1)
	default:
		w.value(elem, p, depth+1)
	}
}
