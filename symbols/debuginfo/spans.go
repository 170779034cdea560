package debuginfo

import (
	"cmp"
	"slices"
)

// span is a piece of code, and the offset of its owner: a function's entry, or a unit.
type span struct {
	Range
	off uint64
}

// spanSet collects spans. A program has as many spans of the same code as units that include
// its source. Of these, it keeps the one with the highest offset, which is also that of the
// last unit.
type spanSet struct {
	list   []span
	recent []int32 // by a hash of the code: the place in list, plus one
}

const recentSpans = 16

// add adds a span.
func (s *spanSet) add(x span) {
	if s.recent == nil {
		s.recent = make([]int32, 1<<recentSpans)
	}
	slot := &s.recent[x.Low*0x9e3779b97f4a7c15>>(64-recentSpans)] // Knuth, TAOCP 6.4
	if i := *slot - 1; i >= 0 && s.list[i].Range == x.Range {
		s.list[i].off = max(s.list[i].off, x.off)
		return
	}
	if len(s.list) == maxUnitRanges {
		return
	}
	s.list = append(s.list, x)
	*slot = int32(len(s.list))
}

// sameStart limits how many spans with the same start are compared with each other.
const sameStart = 16

// sorted returns the spans by start, then by offset, without repeats.
func (s *spanSet) sorted() []span {
	slices.SortFunc(s.list, func(x, y span) int {
		return cmp.Or(cmp.Compare(x.Low, y.Low), cmp.Compare(x.off, y.off))
	})
	// Go backwards, so that the last one of the same code stays.
	out := s.list
	at := len(out)
	for i := len(s.list) - 1; i >= 0; i-- {
		x := s.list[i]
		again := false
		for k := at; k < len(out) && k < at+sameStart && out[k].Low == x.Low; k++ {
			again = again || out[k].High == x.High
		}
		if !again {
			at--
			out[at] = x
		}
	}
	return out[at:]
}

// crossRefs collects references from units to entries of other units.
type crossRefs struct {
	aims  []uint64 // offsets of entries that are referred to
	units []uint64 // the unit referred to in the upper half, the referring one in the lower

	aimsSorted, unitsSorted int
	recentAims, recentUnits [1 << recentCross]uint64
	last                    *Unit
	lastAt                  uint32
}

const recentCross = 10

// add notes that the unit at a position refers to the entry at off.
func (c *crossRefs) add(d *Data, off uint64, from uint32) {
	slot := off * 0x9e3779b97f4a7c15 >> (64 - recentCross)
	if c.recentAims[slot] != off {
		c.recentAims[slot] = off
		c.aims = append(c.aims, off)
		c.aimsSorted = compactLarge(&c.aims, c.aimsSorted)
	}
	if c.last == nil || off < c.last.off || off >= c.last.end {
		i, ok := unitOf(d.Units(), off)
		if !ok {
			return
		}
		c.last, c.lastAt = d.units[i], uint32(i)
	}
	pair := uint64(c.lastAt)<<32 | uint64(from)
	slot = pair * 0x9e3779b97f4a7c15 >> (64 - recentCross)
	if c.recentUnits[slot] != pair+1 {
		c.recentUnits[slot] = pair + 1
		c.units = append(c.units, pair)
		c.unitsSorted = compactLarge(&c.units, c.unitsSorted)
	}
}

// compactLarge sorts a list and drops repeats, if it has become twice as long as after the
// last time. It returns the length to pass the next time.
func compactLarge(list *[]uint64, sorted int) int {
	if len(*list) <= max(2*sorted, 1<<16) {
		return sorted
	}
	slices.Sort(*list)
	*list = slices.Compact(*list)
	return len(*list)
}
