package debuginfo

import (
	"debug/dwarf"
	"slices"

	"kprobe/symbols/dwread"
)

// Location says where a value is while the program is in Range: a DWARF expression. The zero
// Range means everywhere.
type Location struct {
	Range
	Expr []byte
}

// Everywhere reports whether the location holds at every address.
func (l Location) Everywhere() bool { return l.Range == Range{} }

// maxLocations limits the list of one variable.
const maxLocations = 1 << 16

// Locations returns where a location attribute says that a value is: one expression, or the
// entries of a list. The default entry of a list comes last and holds everywhere.
func (e *Entry) Locations(a dwarf.Attr) []Location {
	return slices.DeleteFunc(e.locations(a), Location.isInstant)
}

// isInstant reports whether a location holds only before one instruction, between two lines.
// GCC writes such locations for inlined code.
func (l Location) isInstant() bool { return l.Low == l.High && l.Low != 0 }

// locations returns Locations, and those that are instants.
func (e *Entry) locations(a dwarf.Attr) []Location {
	v, ok := e.Val(a)
	if !ok {
		return nil
	}
	if v.IsBlock() {
		if len(v.B) == 0 {
			return nil
		}
		return []Location{{Expr: v.B}}
	}
	switch v.form {
	case formSecOffset, formData4, formData8, formLoclistx:
		return e.unit.locationList(v)
	}
	return nil
}

// LocationAt chooses the expression for an address. If the value has no place there, ok is
// false, and list says where it has one. A parameter's first instant counts, because nothing
// has run yet that could change it.
func (e *Entry) LocationAt(a dwarf.Attr, pc uint64) (expr []byte, list []Location, ok bool) {
	all := e.locations(a)
	list = slices.DeleteFunc(slices.Clone(all), Location.isInstant)
	for _, l := range list {
		if l.Everywhere() || l.Low <= pc && pc < l.High {
			return l.Expr, list, len(l.Expr) > 0
		}
	}
	for _, l := range all {
		if e.tag == dwarf.TagFormalParameter && l.isInstant() && l.Low == pc {
			return l.Expr, list, len(l.Expr) > 0
		}
	}
	return nil, list, false
}

func (u *Unit) locationList(v Val) []Location {
	t := u.root()
	if u.version >= 5 {
		off := v.U
		if v.form == formLoclistx {
			var ok bool
			if off, ok = u.listOffset(u.data.locLists(), t.locBase, v.U); !ok {
				return nil
			}
		}
		return u.loclist(u.data.locLists(), off)
	}
	if u.skel != nil {
		return u.loclistGNU(v.U)
	}
	r := dwread.At(u.data.loc(), v.U)
	base, all := t.low, ^uint64(0)
	if u.addrSize == 4 {
		all = 0xffffffff
	}
	var out []Location
	for len(out) < maxLocations {
		lo, hi := r.Uint(u.addrSize), r.Uint(u.addrSize)
		switch {
		case r.Bad || lo == 0 && hi == 0:
			return out
		case lo == all:
			base = hi
			continue
		}
		expr := r.Take(r.U16())
		if hi >= lo && base+hi >= base+lo && !r.Bad {
			out = append(out, Location{Range{base + lo, base + hi}, expr})
		}
	}
	return out
}

func (u *Unit) loclist(sec []byte, off uint64) []Location {
	l := u.listAt(sec, off)
	var out, rest []Location
	for len(out) < maxLocations {
		kind := l.U8()
		r, more := l.addresses(kind)
		if !more {
			break
		}
		if kind == lleBaseAddress || kind == lleBaseAddressx {
			continue
		}
		loc := Location{Range: r, Expr: l.Take(l.Uleb())}
		switch {
		case l.Bad:
			return append(out, rest...)
		case kind == lleDefault:
			rest = []Location{loc}
		case r.High >= r.Low:
			out = append(out, loc)
		}
	}
	return append(out, rest...)
}

// loclistGNU reads the lists of split DWARF 4 (DW_LLE_GNU_*). They number their entries
// differently, and their lengths have a fixed size.
func (u *Unit) loclistGNU(off uint64) []Location {
	t := u.root()
	r := dwread.At(u.data.loc(), off)
	var out []Location
	for len(out) < maxLocations {
		var l Location
		var ok bool
		switch r.U8() {
		case 3: // start and length
			l.Low, ok = u.indexed(t, r.Uleb())
			l.High = l.Low + r.U32()
		case 2: // start and end
			l.Low, ok = u.indexed(t, r.Uleb())
			if ok {
				l.High, ok = u.indexed(t, r.Uleb())
			}
		default:
			return out
		}
		l.Expr = r.Take(r.U16())
		if r.Bad {
			return out
		}
		if ok && l.High >= l.Low {
			out = append(out, l)
		}
	}
	return out
}
