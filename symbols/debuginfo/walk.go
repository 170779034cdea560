package debuginfo

import (
	"debug/dwarf"
	"iter"
	"slices"
)

// maxDepth limits how deep entries nest. Compilers stay below 64.
const maxDepth = 512

// Children yields an entry's direct children. It leaves out entries that damage hides.
func (e Entry) Children() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if e.unit == nil || !e.children {
			return
		}
		off := e.next
		for {
			c, _, ok := e.unit.entryAt(off)
			if !ok || c.tag == 0 || !yield(c) {
				return
			}
			if off, ok = e.unit.after(&c); !ok {
				return
			}
		}
	}
}

// Top yields the entries of a unit that are in no other entry.
func (u *Unit) Top() iter.Seq[Entry] {
	e, _, _ := u.entryAt(u.first)
	return e.Children()
}

// after returns the offset after an entry and everything in it.
func (u *Unit) after(e *Entry) (uint64, bool) {
	if !e.children {
		return e.next, true
	}
	if r, ok := e.RefTo(dwarf.AttrSibling); ok && r.off > e.next && r.off < u.end {
		return r.off, true
	}
	room := make([]Val, 0, 24)
	off := e.next
	for depth := 1; depth > 0; {
		c, next, ok := u.entryInto(off, room)
		if !ok {
			return 0, false
		}
		switch {
		case c.tag == 0:
			depth--
		case c.children:
			if r, ok := c.RefTo(dwarf.AttrSibling); ok && r.off > next && r.off < u.end {
				next = r.off
			} else {
				depth++
			}
		}
		off = next
	}
	return off, true
}

// walk goes through all entries of the unit in order, with their depth; the first has 0. The
// next step overwrites an entry's values. visit returns whether to go into the entry.
func (u *Unit) walk(visit func(e *Entry, depth int) (below bool)) {
	room := make([]Val, 0, 32)
	off, depth := u.first, 0
	for {
		e, next, ok := u.entryInto(off, room)
		if !ok {
			return
		}
		if cap(e.vals) > cap(room) {
			room = e.vals[:0]
		}
		if e.tag == 0 {
			if depth--; depth <= 0 {
				return
			}
			off = next
			continue
		}
		below := visit(&e, depth)
		switch {
		case !e.children:
		case below && depth < maxDepth:
			depth++
		default:
			if next, ok = u.after(&e); !ok {
				return
			}
		}
		if off = next; depth == 0 {
			return
		}
	}
}

// pathBy is path, found from the entry upwards with the index of cells. It returns nil if the
// index doesn't suffice.
func (u *Unit) pathBy(x *nameIndex, off uint64) []Entry {
	var out []Entry
	budget := maxDepth
	for off != u.first && len(out) < maxDepth {
		e, _, ok := u.entryAt(off)
		if !ok {
			return nil
		}
		out = append(out, e)
		parent, ok := u.parentBy(x, off, &budget)
		if !ok || parent >= off || parent < u.first {
			return nil
		}
		off = parent
	}
	e, _, ok := u.entryAt(u.first)
	if !ok || off != u.first {
		return nil
	}
	out = append(out, e)
	slices.Reverse(out)
	return out
}

// parentBy finds the entry around another one. budget is how many cells may be read.
func (u *Unit) parentBy(x *nameIndex, off uint64, budget *int) (parent uint64, ok bool) {
	from, ok := u.before(x, off)
	if *budget--; !ok || from > off || *budget < 0 {
		return 0, false
	}
	// The entries around the first one of the cell are not the scan's: it tells
	// how many of them were left.
	outer := uint64(0)
	if from != u.first {
		outer = x.cells.at64(2*int(off>>cellBits) + 1)
	}
	s := u.scan(u.planner(), from, off)
	for s.next() {
	}
	if s.bad || s.at != off {
		return 0, false
	}
	if p := s.parent(); p != 0 {
		return p, true
	}
	for range s.closed {
		if outer <= u.first || outer >= from {
			return 0, false
		}
		if outer, ok = u.parentBy(x, outer, budget); !ok {
			return 0, false
		}
	}
	return outer, outer >= u.first
}
