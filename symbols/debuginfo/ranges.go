package debuginfo

import (
	"cmp"
	"debug/dwarf"
	"slices"
	"sort"

	"kprobe/symbols/dwread"
)

// Range is a piece of code, from Low up to but without High.
type Range struct{ Low, High uint64 }

// maxRanges limits the ranges of one entry. A unit with a section for each function has some
// ten thousand.
const maxRanges = 1 << 20

// Ranges returns the code that an entry covers, in a new slice.
func (e *Entry) Ranges() []Range {
	if e.unit == nil {
		return nil
	}
	return e.rangesInto(nil)
}

func (e *Entry) rangesInto(out []Range) []Range {
	u := e.unit
	if v, ok := e.Val(dwarf.AttrRanges); ok {
		return u.rangeList(out, v)
	}
	lv, ok := e.Val(dwarf.AttrLowpc)
	if !ok {
		return out
	}
	t := u.root()
	low, ok := u.addressIn(t, lv)
	hv, ok2 := e.Val(dwarf.AttrHighpc)
	if !ok || !ok2 {
		return out
	}
	high, isAddr := u.addressIn(t, hv)
	if !isAddr {
		n, ok := hv.Int()
		if !ok {
			return out
		}
		high = low + uint64(n)
	}
	if high > low && !dead(low) {
		out = append(out, Range{low, high})
	}
	return out
}

// dead reports whether a linker gives an address to code that it has discarded: 0, 1, -1 or
// -2.
func dead(low uint64) bool { return low <= 1 || low >= ^uint64(1) }

// rangeList reads a list of .debug_rnglists, or of .debug_ranges before
// version 5.
func (u *Unit) rangeList(out []Range, v Val) []Range {
	t := u.root()
	if u.version >= 5 {
		off := v.U
		if v.form == formRnglistx {
			var ok bool
			if off, ok = u.listOffset(u.data.sec.RngLists, t.rngBase, v.U); !ok {
				return out
			}
		}
		return u.rnglist(out, off)
	}
	sec, off := u.data.sec.Ranges, v.U
	if u.skel != nil {
		sec = u.skel.data.sec.Ranges
		off += t.rngBase
	}
	r := dwread.At(sec, off)
	base, all := t.low, ^uint64(0)
	if u.addrSize == 4 {
		all = 0xffffffff
	}
	for len(out) < maxRanges {
		lo, hi := r.Uint(u.addrSize), r.Uint(u.addrSize)
		switch {
		case r.Bad || lo == 0 && hi == 0:
			return out
		case lo == all:
			base = hi
		case base+hi > base+lo && hi > lo && !dead(base+lo):
			out = append(out, Range{base + lo, base + hi})
		}
	}
	return out
}

// listOffset looks up an index in a table of offsets (DW_FORM_rnglistx, DW_FORM_loclistx),
// which count from the table's start.
func (u *Unit) listOffset(sec []byte, base, i uint64) (uint64, bool) {
	size := uint64(4)
	if u.dwarf64 {
		size = 8
	}
	if i > uint64(len(sec)) {
		return 0, false
	}
	r := dwread.At(sec, base+i*size)
	off := r.Offset(u.dwarf64)
	return base + off, !r.Bad
}

// rnglist reads a list of .debug_rnglists. Its entries have the same numbers as those of
// location lists, but there is no default entry (DWARF 5, table 7.30).
func (u *Unit) rnglist(out []Range, off uint64) []Range {
	l := u.listAt(u.data.sec.RngLists, off)
	for len(out) < maxRanges {
		kind := l.U8()
		if kind >= lleDefault {
			kind++
		}
		r, more := l.addresses(kind)
		if !more || l.Bad {
			return out
		}
		if kind == lleOffsetPair && l.base != 0 && dead(l.base) {
			continue
		}
		if r.High > r.Low && !dead(r.Low) {
			out = append(out, r)
		}
	}
	return out
}

func covers(list []Range, pc uint64) bool {
	for _, r := range list {
		if r.Low <= pc && pc < r.High {
			return true
		}
	}
	return false
}

// unitRange is code of a unit. reach is the largest end of this range and all before it.
type unitRange struct {
	Range
	reach uint64
	unit  *Unit
}

// unitRanges returns the code of all units by address. It comes from .debug_aranges as far as
// that goes, and otherwise from the units' own ranges.
func (d *Data) unitRanges() []unitRange {
	return d.ranges.get(func() []unitRange {
		out := make([]unitRange, 0, len(d.sec.Aranges)/16)
		d.eachRange(func(u *Unit, r Range) {
			if len(out) < maxUnitRanges {
				out = append(out, unitRange{Range: r, unit: u})
			}
		})
		slices.SortFunc(out, func(x, y unitRange) int {
			if x.Low != y.Low { // there may be millions; few of them need their units compared
				return cmp.Compare(x.Low, y.Low)
			}
			return cmp.Compare(x.unit.off, y.unit.off)
		})
		reach := uint64(0)
		for i := range out {
			reach = max(reach, out[i].High)
			out[i].reach = reach
		}
		return out
	})
}

// maxUnitRanges limits the table of a hostile file.
const maxUnitRanges = 1 << 24

// eachRange calls tell with the code of all units.
func (d *Data) eachRange(tell func(*Unit, Range)) {
	told := d.aranges(tell)
	var room []Range
	held := uint64(0)
	for _, u := range d.Units() {
		if u.off-held > holdAtOnce && d.release != nil {
			d.release(held, u.off)
			held = u.off
		}
		if told[u.off] || u.kind == utPartial || u.kind == utType {
			continue
		}
		t := u.root()
		if !t.ok || t.entry.tag == dwarf.TagPartialUnit {
			continue
		}
		room = t.entry.rangesInto(room[:0])
		if len(room) == 0 && t.hasDwo {
			if full := u.full(); full != u {
				ft := full.root()
				room = ft.entry.rangesInto(room[:0])
			}
		}
		for _, r := range room {
			tell(u, r)
		}
	}
}

// aranges calls tell with what .debug_aranges contains. told has the units that it mentions.
func (d *Data) aranges(tell func(*Unit, Range)) (told map[uint64]bool) {
	told = map[uint64]bool{}
	r := dwread.At(d.sec.Aranges, 0)
	for r.Left() > 12 {
		start := r.At
		n, d64 := r.Length()
		if r.Bad {
			break
		}
		end := r.At + n
		s := dwread.At(r.B[:end], r.At)
		version := s.U16()
		off := s.Offset(d64)
		addrSize, segSize := int(s.U8()), s.U8()
		r.At = end
		u := d.unitFrom(off)
		if s.Bad || version != 2 || addrSize != 4 && addrSize != 8 || segSize != 0 || u == nil {
			continue
		}
		if rest := (s.At - start) % uint64(2*addrSize); rest != 0 {
			s.Skip(uint64(2*addrSize) - rest)
		}
		any := false
		for range maxRanges {
			lo, size := s.Uint(addrSize), s.Uint(addrSize)
			if s.Bad || lo == 0 && size == 0 {
				break
			}
			if size != 0 && lo+size > lo && !dead(lo) {
				tell(u, Range{lo, lo + size})
				any = true
			}
		}
		if any {
			told[u.off] = true
		}
	}
	return told
}

// unitFrom finds the unit whose header is at off.
func (d *Data) unitFrom(off uint64) *Unit {
	list := d.Units()
	i := sort.Search(len(list), func(i int) bool { return list[i].off >= off })
	if i == len(list) || list[i].off != off {
		return nil
	}
	return list[i]
}
