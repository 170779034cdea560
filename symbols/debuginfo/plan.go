package debuginfo

import "debug/dwarf"

// plan is what of an entry's form the search for names needs: how to step over
// it, and where its names are.
type plan struct {
	known bool
	named bool // an entry that can be asked for by name
	tag   dwarf.Tag
	size  int // of all values together; -1 where that differs
	attrs []attrSpec
	// Offsets of the name and the linkage name from the first value, where
	// size is fixed; -1 is none.
	name, link         int
	nameForm, linkForm form
}

// fixedSize is the size of a form's values in bytes; -1 where it differs.
func fixedSize(f form, m format) int {
	off := 4
	if m.dwarf64 {
		off = 8
	}
	switch f {
	case formFlagPresent, formImplicitConst:
		return 0
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formAddr:
		return m.addrSize
	case formStrp, formLineStrp, formStrpSup, formSecOffset, formGNURefAlt, formGNUStrpAlt:
		return off
	case formRefAddr:
		if m.version == 2 {
			return m.addrSize
		}
		return off
	}
	return -1
}

// named reports the kinds of entries that are asked for by name.
func named(t dwarf.Tag) bool {
	switch t {
	case dwarf.TagSubprogram, dwarf.TagVariable, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType,
		dwarf.TagEnumerationType, dwarf.TagTypedef, dwarf.TagBaseType:
		return true
	}
	return false
}

func makePlan(a *abbrev, m format) plan {
	p := plan{known: true, named: named(a.tag), tag: a.tag, attrs: a.attrs, name: -1, link: -1}
	for _, s := range a.attrs {
		switch s.attr {
		case dwarf.AttrName:
			p.name, p.nameForm = p.size, s.form
		case dwarf.AttrLinkageName, attrMIPSLinkageName:
			p.link, p.linkForm = p.size, s.form
		}
		n := fixedSize(s.form, m)
		if n < 0 {
			p.size = -1
			return p
		}
		p.size += n
	}
	return p
}

// planner makes the plans of one table of abbreviations.
type planner struct {
	table *abbrevTable
	form  format
	dense []plan
	other map[uint64]plan
	refs  bool // an entry may refer to one of another unit
}

func (u *Unit) planner() *planner {
	t := u.abbrevs.get(func() *abbrevTable { return u.data.abbrevsAt(u.abbrev) })
	p := &planner{table: t, form: u.format(), dense: make([]plan, len(t.dense))}
	all := func(a *abbrev) {
		for _, s := range a.attrs {
			switch s.form {
			case formRefAddr, formIndirect:
				p.refs = true
			}
		}
	}
	for i := range t.dense {
		p.dense[i] = makePlan(&t.dense[i], p.form)
		all(&t.dense[i])
	}
	for _, a := range t.sparse {
		all(a)
	}
	return p
}

func (p *planner) find(code uint64) *plan {
	if code-1 < uint64(len(p.dense)) {
		return &p.dense[code-1]
	}
	if have, ok := p.other[code]; ok {
		return &have
	}
	a := p.table.find(code)
	if a == nil {
		return nil
	}
	made := makePlan(a, p.form)
	if p.other == nil {
		p.other = map[uint64]plan{}
	}
	p.other[code] = made
	return &made
}

// spot is a name or linkage name in a unit.
type spot struct {
	off  uint64 // of the entry
	tag  dwarf.Tag
	link bool
	v    Val
}

// names tells each name and linkage name in the unit, in the order of their
// entries. ok is false where damage hides some.
func (u *Unit) names(p *planner, tell func(s *spot)) (ok bool) {
	var s spot
	r := bufAt(u.bytes(), u.first)
	for r.left() > 0 {
		s.off = r.at
		code := r.uleb()
		if code == 0 {
			continue // the end of an entry's children, or padding
		}
		a := p.find(code)
		if a == nil || r.bad {
			return false
		}
		if a.size < 0 {
			u.variedNames(&r, a, p.form, &s, tell)
			if r.bad {
				return false
			}
			continue
		}
		at := r.at
		r.skip(uint64(a.size))
		if r.bad {
			return false
		}
		if !a.named {
			continue
		}
		s.tag = a.tag
		for i, off := range [...]int{a.name, a.link} {
			if off < 0 {
				continue
			}
			f := a.nameForm
			if s.link = i == 1; s.link {
				f = a.linkForm
			}
			in := bufAt(r.b, at+uint64(off))
			s.v.form = f
			s.v.U, s.v.B = in.value(f, p.form, 0)
			tell(&s)
		}
	}
	return true
}

// variedNames is names for one entry whose size is not fixed.
func (u *Unit) variedNames(r *buf, a *plan, m format, at *spot, tell func(*spot)) {
	for _, s := range a.attrs {
		f := s.form
		if f == formIndirect {
			if f = form(r.uleb()); f == formIndirect || f == formImplicitConst {
				r.bad = true
				return
			}
		}
		v, b := r.value(f, m, s.implicit)
		if r.bad {
			return
		}
		switch s.attr {
		case dwarf.AttrName, dwarf.AttrLinkageName, attrMIPSLinkageName:
			if a.named {
				at.tag, at.link = a.tag, s.attr != dwarf.AttrName
				at.v = Val{form: f, U: v, B: b}
				tell(at)
			}
		}
	}
}
