package vars

import "kprobe/fetch"

// variantField is field for a member that a definition names. A member in a variant of a Rust
// enum can only be read while that variant is there.
func (v value) variantField(name string) (value, error) {
	m, err := v.field(name)
	if err != nil {
		return m, err
	}
	of, err := v.unreference()
	if err == nil && of.t.kind == kindPointer {
		if of, err = of.deref(); err == nil {
			of, err = of.unreference()
		}
	}
	if err != nil || of.t.kind != kindStruct || !v.f.language(of.t.entry).IsRust() {
		return m, nil
	}
	list := v.f.members(v.f.whole(of.t))
	var tag *member
	chosen := -1
	for i := range list {
		switch c := &list[i]; {
		case c.tag:
			tag = c
		case c.variant && c.name == name:
			chosen = i
		}
	}
	if chosen < 0 {
		return m, nil
	}
	if tag == nil { // there is only one possible variant
		return m, nil
	}
	is, not := list[chosen].cases, []uint64(nil)
	if len(is) == 0 {
		for i := range list {
			if list[i].variant && !list[i].tag && i != chosen {
				not = append(not, list[i].cases...)
			}
		}
	}
	if !list[chosen].isCase || len(is) > 1 || len(not) > maxCases {
		return m, unknown("it is not known whether %s is there", name)
	}
	of.p, err = of.p.part(tag.off, tag.typ.size)
	if err != nil {
		return m, err
	}
	for _, n := range is {
		if m.p, err = m.p.when(of.p, tag.typ.size, n, false); err != nil {
			return m, err
		}
	}
	for _, n := range not {
		if m.p, err = m.p.when(of.p, tag.typ.size, n, true); err != nil {
			return m, err
		}
	}
	return m, nil
}

// maxCases limits how many other variants must be excluded.
const maxCases = 16

// when returns a place that can only be read while the number at tag is n; with not, while it
// is another number.
func (p place) when(tag place, size int64, n uint64, not bool) (place, error) {
	if size < 8 {
		n &= 1<<(8*size) - 1
	}
	s := fetch.Step{Op: fetch.StepWhen, Size: uint8(size), Imm2: n, Not: not}
	switch {
	case size != 1 && size != 2 && size != 4 && size != 8:
	case tag.kind == isBytes || tag.kind == isValue && tag.sym.src.Source == fetch.SourceImm:
		v, err := tag.value(size)
		if c, known := v.isConst(); err == nil && known {
			if c<<(64-8*size)>>(64-8*size) == n != not {
				return p, nil
			}
			return p, noValueError("another variant is there")
		}
	case tag.kind == inMemory && p.kind == inMemory && tag.sym.root() == p.sym.root():
		if at, ok := tag.sym.behind(p.sym); ok {
			s.Imm = uint64(at)
			p.sym = p.sym.step(s)
			return p, nil
		}
	case tag.kind == isValue:
		r, shift, ok := tag.sym.shifted()
		if !ok {
			break
		}
		s.FromReg, s.Reg, s.Imm = true, r, shift
		return p.each(func(v sym) sym { return v.step(s) }), nil
	}
	return p, noValueError("the tag that says whether it is there is stored elsewhere")
}

// each applies a change to how every part of a place is found.
func (p place) each(do func(sym) sym) place {
	switch p.kind {
	case inMemory, isValue:
		p.sym = do(p.sym)
	case inPieces:
		list := append([]piece(nil), p.pieces...)
		for i := range list {
			list[i].place = list[i].place.each(do)
		}
		p.pieces = list
	}
	return p
}

// root returns where a chain starts.
func (s sym) root() [4]uint64 {
	return [4]uint64{uint64(s.src.Source), uint64(s.src.Reg), s.src.Imm, uint64(s.src.Off)}
}

// behind returns how far an address lies after another one that is found by the same steps.
func (s sym) behind(base sym) (int64, bool) {
	cut := func(s sym) ([]fetch.Step, uint64) {
		if n := len(s.steps) - 1; n >= 0 && s.steps[n].Op == fetch.StepAdd && !s.steps[n].FromReg {
			return s.steps[:n], s.steps[n].Imm
		}
		return s.steps, 0
	}
	a, off := cut(s)
	b, from := cut(base)
	for len(b) > 0 && b[len(b)-1].Op == fetch.StepWhen { // conditions of an enum around it, or of another case
		inner := b[:len(b)-1]
		b = inner
		if n := len(b) - 1; n >= 0 && b[n].Op == fetch.StepAdd && !b[n].FromReg {
			from, b = from+b[n].Imm, b[:n]
		}
	}
	for len(a) > 0 && a[len(a)-1].Op == fetch.StepWhen {
		a = a[:len(a)-1]
		if n := len(a) - 1; n >= 0 && a[n].Op == fetch.StepAdd && !a[n].FromReg {
			off, a = off+a[n].Imm, a[:n]
		}
	}
	if len(a) != len(b) {
		return 0, false
	}
	for i := range a {
		if a[i] != b[i] {
			return 0, false
		}
	}
	return int64(off - from), true
}

// shifted returns a register and a shift, if the value is the register's bits from that number
// on.
func (s sym) shifted() (r fetch.Reg, shift uint64, ok bool) {
	if s.src.Source != fetch.SourceReg || len(s.steps) > 1 {
		return 0, 0, false
	}
	if len(s.steps) == 1 {
		if s.steps[0].Op != fetch.StepShr || s.steps[0].FromReg || s.steps[0].Imm > 63 {
			return 0, 0, false
		}
		shift = s.steps[0].Imm
	}
	return s.src.Reg, shift, true
}
