package debuginfo

import (
	"encoding/binary"

	"kprobe/symbols/dwread"
)

// scan goes through the entries of a unit in the order of the file, and stops at functions,
// inlined calls, variables and types. It reads no more of an entry than it needs to step over
// it, and doesn't trust DW_AT_sibling. It may start at any entry.
type scan struct {
	u    *Unit
	p    *planner
	b    []byte // up to the unit's end
	at   uint64 // of the next entry
	stop uint64 // entries from here on are not visited
	bad  bool   // damage hides the rest

	off  uint64 // of the entry
	plan *plan
	vals uint64       // its first value
	pos  [slots]int64 // where an entry of unknown size has its slots; -1 means none
	form [slots]form

	// around has the entries around the next one, innermost last, as far as the scan has
	// entered them. inFunc is how many of them there are down to the outermost function; it
	// is 0 outside of functions.
	around []uint64
	inFunc int
	closed int // how many entries the scan has left without having entered them

	// nest, unless nil, notes the entries that have children.
	nest *nesting

	// cell, unless nil, is called at each first entry at or after a multiple of cellSize.
	cell     func(at uint64)
	nextCell uint64
}

// scan starts a scan of a part of a unit, at an entry.
func (u *Unit) scan(p *planner, from, stop uint64) scan {
	s := scan{u: u, p: p, b: u.bytes(), at: from, stop: min(stop, u.end), nextCell: ^uint64(0)}
	if from > s.stop || from < u.first {
		s.at, s.bad = s.stop, true
	}
	return s
}

// next goes to the next entry at which a scan stops.
func (s *scan) next() bool {
	b, at, stop := s.b, s.at, s.stop
	for at < stop {
		if at >= s.nextCell {
			s.at = at
			s.cell(at)
		}
		start := at
		code := uint64(b[at])
		at++
		switch {
		case code == 0: // the end of an entry's children, or padding
			if n := len(s.around) - 1; n >= 0 {
				s.around = s.around[:n]
				if s.nest != nil {
					s.nest.close(at - s.u.off)
				}
				if n < s.inFunc {
					s.inFunc = 0
				}
			} else {
				s.closed++
			}
			continue
		case code >= 0x80:
			r := dwread.At(b, start)
			code = r.Uleb()
			at = r.At
		}
		var p *plan
		if code-1 < uint64(len(s.p.dense)) {
			p = &s.p.dense[code-1]
		} else if p = s.p.other[code]; p == nil {
			return s.fail()
		}
		vals := at
		if p.size >= 0 {
			at += uint64(p.size)
		} else {
			at = s.steps(p, at)
		}
		if at > uint64(len(b)) {
			return s.fail()
		}
		in := s.inFunc
		if p.children {
			if len(s.around) == maxDepth {
				return s.fail()
			}
			s.around = append(s.around, start)
			if s.nest != nil && !s.nest.open(start-s.u.off) {
				return s.fail()
			}
			if p.kind == kindFunc && in == 0 {
				s.inFunc = len(s.around)
			}
		}
		switch p.kind {
		case kindOther:
			continue
		case kindVariable, kindType:
			if in != 0 {
				continue // nobody asks for the variables of functions
			}
		}
		s.off, s.plan, s.vals, s.at = start, p, vals, at
		return true
	}
	s.at = at
	return false
}

func (s *scan) fail() bool {
	s.at, s.bad = s.stop, true
	return false
}

// steps goes through values of unknown size, and returns the place after them. If there is
// damage, that is past the end.
func (s *scan) steps(p *plan, at uint64) uint64 {
	if p.kind != kindOther {
		for i := range s.pos {
			s.pos[i] = -1
		}
	}
	b := s.b
	for i := range p.steps {
		st := &p.steps[i]
		at += uint64(st.skip)
		if at >= uint64(len(b)) && (st.form != 0 || at > uint64(len(b))) {
			return uint64(len(b)) + 1
		}
		f := st.form
		if f == formIndirect {
			r := dwread.At(b, at)
			if f = form(r.Uleb()); r.Bad || f == formIndirect || f == formImplicitConst {
				return uint64(len(b)) + 1
			}
			at = r.At
		}
		if st.slot < slots {
			s.pos[st.slot], s.form[st.slot] = int64(at), f
		}
		switch f {
		case 0:
		case formExprloc, formBlock, formBlock1:
			if n := uint64(b[at]); f == formBlock1 || n < 0x80 {
				at += 1 + n
				continue
			}
			fallthrough
		default:
			r := dwread.At(b, at)
			if value(&r, f, s.p.form, 0); r.Bad {
				return uint64(len(b)) + 1
			}
			at = r.At
		}
	}
	return at
}

// has reports whether the entry has a slot, and where and how it is written.
func (s *scan) has(i slot) (at uint64, f form, ok bool) {
	if s.plan.size < 0 {
		return uint64(s.pos[i]), s.form[i], s.pos[i] >= 0
	}
	if s.plan.at[i] < 0 {
		return 0, 0, false
	}
	return s.vals + uint64(s.plan.at[i]), s.plan.form[i], true
}

// val returns the value of a slot. Its form is 0 if the entry has none.
func (s *scan) val(i slot) Val {
	at, f, ok := s.has(i)
	if !ok {
		return Val{}
	}
	if f == formStrp && !s.p.form.dwarf64 {
		return Val{form: f, U: uint64(binary.LittleEndian.Uint32(s.b[at:]))}
	}
	r := dwread.At(s.b, at)
	v := Val{form: f}
	v.U, v.B = value(&r, f, s.p.form, 0)
	return v
}

// num returns the value of a slot as a number. For DW_FORM_string it is the place of the
// bytes. The form is 0 if the entry has no value. num is val for callers that examine every
// entry.
func (s *scan) num(i slot) (uint64, form) {
	if p := s.plan; p.size >= 0 {
		if p.at[i] < 0 {
			return 0, 0
		}
		at := s.vals + uint64(p.at[i])
		switch p.width[i] {
		case 4:
			return uint64(binary.LittleEndian.Uint32(s.b[at:])), p.form[i]
		case 8:
			return binary.LittleEndian.Uint64(s.b[at:]), p.form[i]
		}
	}
	at, f, ok := s.has(i)
	switch {
	case !ok:
		return 0, 0
	case f == formString:
		return at, f
	}
	r := dwread.At(s.b, at)
	v, _ := value(&r, f, s.p.form, 0)
	return v, f
}

// origin returns the offset in the section that a reference of the entry has. other says that
// it is in another unit. ok is false for references by signature and to other files.
func (s *scan) origin(i slot) (off uint64, other, ok bool) {
	v, f := s.num(i)
	switch f {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		return s.u.off + v, false, v < s.u.end-s.u.off
	case formRefAddr:
		return v, v < s.u.off || v >= s.u.end, true
	}
	return 0, false, false
}

// altOrigin is origin for a reference to an entry in the file that dwz made.
func (s *scan) altOrigin(i slot) (off uint64, ok bool) {
	v, f := s.num(i)
	return v, f == formGNURefAlt || f == formRefSup4 || f == formRefSup8
}

// parent returns the innermost entry around the next one, or 0 if the scan hasn't entered one.
func (s *scan) parent() uint64 {
	if n := len(s.around); n > 0 {
		return s.around[n-1]
	}
	return 0
}
