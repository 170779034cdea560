package vars

import (
	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// container returns how the contents of a value of a type are found, if there is a recipe for
// the type, and nil otherwise. Everything that a recipe asks for must exist. So a type that
// only has the name of a container, or comes from an unknown version, is a structure like any
// other.
func (f *frame) container(t ctype) *fetch.Content {
	t = f.whole(t)
	if t.entry.Unit() == nil {
		return nil
	}
	key := t.entry.Ref()
	if c, ok := f.contents[key]; ok {
		return c
	}
	if len(f.contents) > maxContents || f.nested > maxChain {
		return nil
	}
	if f.contents == nil {
		f.contents = map[debuginfo.Ref]*fetch.Content{}
	}
	c := &fetch.Content{Name: t.name, Size: t.size}
	f.contents[key] = c
	f.nested++
	ok := f.recipe(t, c)
	f.nested--
	if !ok {
		f.contents[key] = nil
		return nil
	}
	return c
}

// maxContents limits how many types the containers of one place may lead to.
const maxContents = 5000

// recipe fills in a type's content. It returns false if there is no recipe for the type.
func (f *frame) recipe(t ctype, c *fetch.Content) bool {
	switch l := f.languageOf(t); {
	case l.IsGo():
		return f.goContent(t, c)
	case l.IsRust():
		return f.rustContent(t, c)
	case l.IsCXX():
		return t.kind == kindStruct && f.cxxContent(t, c) || t.kind == kindPointer && f.wideText(t, c)
	}
	return false
}

func (f *frame) languageOf(t ctype) debuginfo.Language {
	if t.entry.Unit() != nil {
		return f.language(t.entry)
	}
	return f.fn.Unit().Language()
}

// elem returns how a value of any type is recorded in a container, or nil if it can't be.
func (f *frame) elem(t ctype) *fetch.Content {
	if t.kind == kindStruct || t.kind == kindPointer {
		t = f.whole(t)
		if c := f.container(t); c != nil {
			return c
		}
	}
	switch t.kind {
	case kindPointer:
		if f.isText(t) {
			return &fetch.Content{Kind: fetch.ContentText, Name: t.name, Size: 8, Ptr: word(0)}
		}
	case kindReference:
		t.kind = kindPointer
	case kindStruct:
		if ptr, n, ok := f.textParts(t); ok {
			return &fetch.Content{Kind: fetch.ContentText, Name: t.name, Size: t.size, Ptr: word(ptr), Count: word(n)}
		}
		if f.nested < maxNested*2 {
			f.nested++
			c := f.structure(t)
			f.nested--
			if c != nil {
				return c
			}
		}
	case kindArray:
		if c := f.arrayContent(t); c != nil {
			return c
		}
	}
	return f.plainContent(t, 0, 0)
}

// arrayContent describes an array whose elements contain texts or containers, or that is too
// large to be recorded whole; it is nil for other arrays.
func (f *frame) arrayContent(t ctype) *fetch.Content {
	elem, stride := f.element(t)
	if t.count <= 0 || stride <= 0 || f.nested > maxNested*2 {
		return nil
	}
	f.nested++
	e := f.elem(f.whole(elem))
	f.nested--
	if e == nil || e.Kind == fetch.ContentPlain && t.size <= fetch.MaxString {
		return nil
	}
	count := fetch.Trail{{Op: fetch.StepAnd}, {Op: fetch.StepAdd, Imm: uint64(t.count)}}
	return &fetch.Content{Kind: fetch.ContentSequence, Name: t.name, Size: t.size, Ptr: fetch.Trail{}, Count: count, Stride: stride, Elem: e}
}

// plainContent describes a value that is read directly.
func (f *frame) plainContent(t ctype, width, bit uint8) *fetch.Content {
	c := &fetch.Content{Kind: fetch.ContentPlain, Name: t.name, Size: t.size}
	if f.isEmpty(t) || t.kind == kindStruct && t.size == 0 || t.kind == kindVoid {
		c.Size, c.Type = 0, emptyType(t)
		return c
	}
	c.Type = f.fieldType(t, width, bit, 0)
	if c.Type.Size == 0 || t.size > fetch.MaxString {
		return nil
	}
	return c
}

// structure describes a structure that contains containers or texts; it is nil for other
// structures.
func (f *frame) structure(t ctype) *fetch.Content {
	c := &fetch.Content{Kind: fetch.ContentStruct, Name: t.name, Size: t.size}
	if f.variantsOf(t, c) {
		return c
	}
	plain := true
	if !f.addMembers(c, t, 0, 0, &plain) || plain || len(c.Members) == 0 {
		return nil
	}
	return c
}

// addMembers adds the members of a structure and of its base classes.
func (f *frame) addMembers(c *fetch.Content, t ctype, off int64, depth int, plain *bool) bool {
	for _, m := range f.members(t) {
		switch {
		case m.static.Unit() != nil:
			continue
		case m.tag || m.isCase || len(c.Members) == maxFields || f.tooDeep(depth) || m.off < 0:
			return false
		case m.base && m.typ.kind == kindStruct && f.container(m.typ) == nil:
			if !f.addMembers(c, f.whole(m.typ), off+m.off, depth+1, plain) {
				return false
			}
			continue
		}
		e := (*fetch.Content)(nil)
		if m.width != 0 {
			e = f.plainContent(m.typ, m.width, m.bit)
		} else {
			e = f.elem(m.typ)
		}
		if e == nil {
			return false
		}
		*plain = *plain && e.Kind == fetch.ContentPlain
		c.Members = append(c.Members, fetch.ContentMember{Name: m.name, Off: off + m.off, Elem: e})
	}
	return true
}

// variantsOf describes a Rust enum that has at least one variant with more than numbers in it.
func (f *frame) variantsOf(t ctype, c *fetch.Content) bool {
	if !f.languageOf(t).IsRust() {
		return false
	}
	plain, tags := true, 0
	for _, m := range f.members(t) {
		switch {
		case m.tag:
			tags++
			tag, ok := load(value{f: f, t: m.typ, p: place{kind: inMemory, sym: constant(uint64(m.off))}})
			if !ok {
				return false
			}
			c.Tag = tag
		case m.isCase:
			e := f.elem(m.typ)
			if e == nil {
				return false
			}
			plain = plain && e.Kind == fetch.ContentPlain
			c.Members = append(c.Members, fetch.ContentMember{Name: m.name, Off: m.off, Elem: e, Cases: m.cases})
		default:
			return false
		}
	}
	if tags == 0 && len(c.Members) == 1 && !plain { // the only possible variant
		c.Kind = fetch.ContentStruct
		return true
	}
	if tags != 1 || plain {
		c.Members, c.Tag = nil, nil
		return false
	}
	// Cases are compared as they are loaded, zero-extended.
	size := uint8(8)
	for _, s := range c.Tag {
		if s.Op == fetch.StepLoad {
			size = s.Size
		}
	}
	for i := range c.Members {
		for k := range c.Members[i].Cases {
			if size < 8 {
				c.Members[i].Cases[k] &= 1<<(8*size) - 1
			}
		}
	}
	c.Kind = fetch.ContentVariant
	return true
}

// contained returns the contents of a value in the form that a definition can record. ok is
// false if the value is no container.
func (v value) contained(out fetch.Variable) (_ fetch.Variable, ok bool) {
	c := v.f.container(v.t)
	if c == nil && v.t.kind == kindStruct {
		c = v.f.structure(v.t)
		if c != nil && v.f.asMembers(v.t) {
			return out, false
		}
	}
	if c == nil {
		return out, false
	}
	out.Type = fetch.Type{Base: fetch.Container, Size: 8, Layout: &fetch.Layout{Name: v.t.name, Content: c}}
	if v.p.kind == inMemory {
		out.InMemory = true
		out.Chain, out.Off = v.p.sym.chain()
		out.Own, out.Owned = v.p.sym.own, !v.behind && !v.f.languageOf(v.t).IsGo()
		return out, true
	}
	word := func(off int64) (fetch.Chain, int, bool) {
		p, err := v.p.part(off, 8)
		if err != nil {
			return fetch.Chain{}, 0, false
		}
		s, err := p.value(8)
		return s.whole(), s.own, err == nil
	}
	if c.Copied() && c.Kind == fetch.ContentSequence && len(c.Ptr) == 1 && len(c.Count) == 1 && c.Count[0].Size == 8 {
		n, own, ok := word(int64(c.Count[0].Imm))
		if !ok {
			return out, false
		}
		if c.Count[0].Op == fetch.StepAtMost {
			n, own = v.atMost(n, own, int64(c.Count[0].Imm2))
		}
		out.Len, out.LenOwn, out.Unit = &n, own, int(c.Stride)
		out.Chain, out.Own, ok = word(int64(c.Ptr[0].Imm))
		return out, ok
	}
	for off := int64(0); off < v.t.size; off += 8 {
		size := min(8, v.t.size-off)
		p, err := v.p.part(off, size)
		w := sym{}
		if err == nil {
			w, err = p.value(size)
		}
		switch {
		case err == nil:
			out.Parts = append(out.Parts, fetch.Part{Off: int(off), Size: uint8(size), Chain: w.whole()})
		case c.Kind == fetch.ContentSequence && len(c.Count) == 1 && c.Count[0].Op == fetch.StepAtMost && int64(c.Count[0].Imm2) == off:
			// Optimized code doesn't keep Go's capacity where it isn't used.
			bare := *c
			bare.Count = fetch.Trail{{Op: fetch.StepLoad, Imm: c.Count[0].Imm, Size: 8}}
			out.Type.Layout.Content = &bare
		default:
			return out, false
		}
	}
	return out, len(out.Parts) > 0
}

// atMost limits a length to the word at off of the value, which is a slice's capacity. It does
// so only if both are in registers.
func (v value) atMost(n fetch.Chain, own int, off int64) (fetch.Chain, int) {
	p, err := v.p.part(off, 8)
	if err != nil {
		return n, own
	}
	most, err := p.value(8)
	reg, ok := most.isReg()
	if err != nil || !ok || n.Source != fetch.SourceReg || len(n.Loads) != 0 || len(n.Steps) != 0 {
		return n, own
	}
	s := sym{src: fetch.Chain{Source: fetch.SourceReg, Reg: n.Reg}}.step(fetch.Step{Op: fetch.StepAtMost, FromReg: true, Reg: reg})
	return s.whole(), own + 1
}

// asMembers reports whether a structure is recorded by its members, with each container in it
// on its own. Rust's enums aren't, because only one variant is there at a time.
func (f *frame) asMembers(t ctype) bool {
	for _, m := range f.members(t) {
		if m.tag {
			return false
		}
	}
	return true
}
