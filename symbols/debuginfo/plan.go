package debuginfo

import "debug/dwarf"

// slot is a value of an entry whose place a scan notes.
type slot uint8

const (
	slotName slot = iota
	slotLink
	slotOrigin // DW_AT_abstract_origin
	slotSpec   // DW_AT_specification
	slotLow
	slotHigh
	slotRanges
	slots
)

// slotOf returns the slot of an attribute, or slots if it has none.
func slotOf(a dwarf.Attr) slot {
	switch a {
	case dwarf.AttrName:
		return slotName
	case dwarf.AttrLinkageName, attrMIPSLinkageName:
		return slotLink
	case dwarf.AttrAbstractOrigin:
		return slotOrigin
	case dwarf.AttrSpecification:
		return slotSpec
	case dwarf.AttrLowpc:
		return slotLow
	case dwarf.AttrHighpc:
		return slotHigh
	case dwarf.AttrRanges:
		return slotRanges
	}
	return slots
}

// kind sorts entries by what questions ask for.
type kind uint8

const (
	kindOther kind = iota
	kindFunc
	kindInlined
	kindVariable
	kindType
)

func kindOf(t dwarf.Tag) kind {
	switch t {
	case dwarf.TagSubprogram:
		return kindFunc
	case dwarf.TagInlinedSubroutine:
		return kindInlined
	case dwarf.TagVariable:
		return kindVariable
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType,
		dwarf.TagEnumerationType, dwarf.TagTypedef, dwarf.TagBaseType:
		return kindType
	}
	return kindOther
}

// plan is what a scan needs to know about an entry's form: how to step over it, and where its
// slots are.
type plan struct {
	children bool
	kind     kind
	// size is the size of all values together. It is -1 if entries differ; steps then says how
	// to go through them.
	size  int
	steps []step
	// at has the slots' distances from the first value, if size is fixed. -1 means none.
	at   [slots]int32
	form [slots]form
	// width is the size of a number in bytes, if it is 4 or 8.
	width [slots]uint8
}

// step skips bytes of values that nobody needs. After them comes the value of a slot, a value
// of varying size, or the end of the values (form 0).
type step struct {
	skip int
	form form
	slot slot
}

// fixedSize returns the size of a form's values in bytes, or -1 if it varies.
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

func makePlan(a *abbrev, m format) plan {
	p := plan{children: a.children, kind: kindOf(a.tag)}
	for i := range p.at {
		p.at[i] = -1
	}
	skip := 0 // bytes since the last step
	for _, s := range a.attrs {
		n, in := fixedSize(s.form, m), slots
		if p.kind != kindOther {
			in = slotOf(s.attr)
		}
		if in < slots {
			p.at[in], p.form[in], p.width[in] = int32(p.size), s.form, 0
			if (n == 4 || n == 8) && s.form != formImplicitConst {
				p.width[in] = uint8(n)
			}
		}
		if in < slots || n < 0 {
			p.steps = append(p.steps, step{skip, s.form, in})
			skip = 0
		} else {
			skip += n
		}
		if p.size += n; n < 0 {
			p.size = -1 << 40 // it stays negative
		}
	}
	if p.size >= 0 {
		p.steps = nil
		return p
	}
	p.size = -1
	if skip > 0 {
		p.steps = append(p.steps, step{skip: skip, slot: slots})
	}
	return p
}

// planner makes the plans of one table of abbreviations.
type planner struct {
	form  format
	dense []plan // code i+1
	other map[uint64]*plan
	// Whether functions and inlined calls refer to others by offsets in the
	// section, and in other ways than by offsets of 4 bytes.
	distant, odd bool
}

// planner returns the unit's plans, which are cached.
func (u *Unit) planner() *planner {
	return u.plans.get(func() *planner {
		return newPlanner(u.abbrevs.get(func() *abbrevTable { return u.data.abbrevsAt(u.abbrev) }), u.format())
	})
}

func newPlanner(t *abbrevTable, m format) *planner {
	p := &planner{}
	p.reset(t, m)
	return p
}

// reset makes the plans of another table in the same memory.
func (p *planner) reset(t *abbrevTable, m format) {
	p.form, p.other, p.distant, p.odd = m, nil, false, false
	p.dense = p.dense[:0]
	for i := range t.dense {
		p.dense = append(p.dense, makePlan(&t.dense[i], m))
		p.references(&p.dense[i])
	}
	for code, a := range t.sparse {
		if p.other == nil {
			p.other = map[uint64]*plan{}
		}
		made := makePlan(a, m)
		p.other[code] = &made
		p.references(&made)
	}
}

// references notes how entries of a plan refer to others.
func (p *planner) references(l *plan) {
	if l.kind != kindFunc && l.kind != kindInlined {
		return
	}
	for _, i := range [...]slot{slotOrigin, slotSpec} {
		switch l.form[i] {
		case 0, formRef4:
		case formRefAddr:
			p.distant = true
			p.odd = p.odd || p.form.dwarf64 || p.form.version == 2
		default:
			p.odd = true
		}
	}
}
