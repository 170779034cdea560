package debuginfo

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// aim is an entry that refers to another as its origin or specification.
type aim struct {
	off  uint64
	kind kind
}

// maxChain limits the chain of origins and specifications from an entry to the function that
// it completes.
const maxChain = 6

// Instances returns the places where a function was inlined. fn is its abstract entry or its
// declaration.
func (d *Data) Instances(fn Entry) []Entry {
	var out []Entry
	for _, r := range d.completing(fn) {
		if r.kind == kindInlined {
			if e, _, ok := r.u.entryAt(r.off); ok {
				out = append(out, e)
			}
		}
	}
	return out
}

// Bodies returns the entries with code of a function, given its abstract entry or its
// declaration: the function itself, or clones that the compiler made of it (.isra, .part,
// .constprop; the several constructors of C++).
func (d *Data) Bodies(fn Entry) []Entry {
	type body struct {
		e  Entry
		at uint64
		u  int // the unit's number, in the order in which units were found
	}
	var list []body
	var last *Unit
	units := 0
	for _, r := range d.completing(fn) {
		if r.u != last {
			last = r.u
			units++
		}
		if r.kind != kindFunc {
			continue
		}
		if e, _, ok := r.u.entryAt(r.off); ok && len(e.Ranges()) > 0 {
			if at, ok := e.EntryPC(); ok {
				list = append(list, body{e, at, units})
			}
		}
	}
	slices.SortStableFunc(list, func(x, y body) int { return cmp.Or(cmp.Compare(x.u, y.u), cmp.Compare(x.at, y.at)) })
	var out []Entry
	for _, b := range list {
		out = append(out, b.e)
	}
	return out
}

// completion is an entry that completes a function's entry, or is that entry.
type completion struct {
	u *Unit
	aim
}

// completing returns a function's entry, and the functions and inlined calls that complete it
// through any number of origins and specifications, in the order of the file. The slice is
// shared.
func (d *Data) completing(fn Entry) []completion {
	if fn.unit == nil {
		return nil
	}
	return d.completed.get(fn.Ref(), func() []completion { return d.complete(fn) })
}

func (d *Data) complete(fn Entry) []completion {
	out := []completion{{fn.unit, aim{fn.off, kindOf(fn.tag)}}}
	seen := map[Ref]bool{fn.Ref(): true}
	for from, step := 0, 0; from < len(out) && step < maxChain; step++ {
		to := len(out)
		for _, of := range out[from:to] {
			if of.kind != kindFunc {
				continue // no entry completes an inlined call
			}
			for _, c := range d.referring(of.u, of.off) {
				if r := (Ref{c.u, c.off}); !seen[r] {
					seen[r] = true
					out = append(out, c)
				}
			}
		}
		from = to
	}
	slices.SortFunc(out, func(x, y completion) int {
		return cmp.Or(cmp.Compare(x.u.off, y.u.off), cmp.Compare(x.off, y.off))
	})
	return out
}

// referring returns the functions and inlined calls that refer to an entry of home as origin
// or specification.
func (d *Data) referring(home *Unit, off uint64) []completion {
	if out, ok := d.completionsOf(home, off); ok {
		return out
	}
	var out []completion
	for _, u := range d.relatives(home, off) {
		off := off
		if u.data != home.data {
			off |= inAlt
		}
		for _, a := range u.aimsAt(home, off) {
			out = append(out, completion{u, a})
		}
	}
	return out
}

// relatives returns the units that may refer to an entry of a unit: the unit itself, and those
// whose bytes contain the offset.
func (d *Data) relatives(home *Unit, off uint64) []*Unit {
	pat := binary.LittleEndian.AppendUint32(nil, uint32(off))
	if d.alt != nil && home.data == d.alt {
		out := d.alt.relatives(home, off)
		for _, u := range d.Units() {
			if bytes.Contains(u.bytes()[u.first:], pat) {
				out = append(out, u)
			}
		}
		return out
	}
	out := []*Unit{home}
	if home.data != d {
		return out // split units don't refer to others
	}
	if !d.crosses() {
		return out
	}
	units := d.Units()
	x := d.ready()
	if x == nil && d.indexes() && d.searches.Add(-1) < 0 {
		x = d.index()
	}
	if x != nil {
		units = nil
		at, _ := slices.BinarySearchFunc(d.Units(), home.off, func(u *Unit, off uint64) int { return cmp.Compare(u.off, off) })
		for _, i := range append(x.linked(uint32(at)), x.blind...) {
			if int(i) < d.info {
				units = append(units, d.units[i])
			}
		}
	}
	for _, u := range units {
		if u.off != home.off && u.full() == u && bytes.Contains(u.bytes()[u.first:], pat) {
			out = append(out, u)
		}
	}
	return out
}

// fewAims is how many entries of a unit are searched for by the bytes of a reference, one by
// one, before going through the whole unit is faster.
const fewAims = 8

// aimsAt returns the functions and inlined calls of the unit that refer to an entry of home as
// origin or specification.
func (u *Unit) aimsAt(home *Unit, off uint64) []aim {
	if x := u.data.ready(); x != nil && off < inAlt && u.asked.Add(1) <= fewAims {
		if out, ok := u.searchAims(x, home, off); ok {
			return out
		}
	}
	return u.aims.get(func() map[uint64][]aim {
		all := map[uint64][]aim{}
		for s := u.scan(u.planner(), u.first, u.end); s.next(); {
			s.tellAims(func(off uint64) { all[off] = append(all[off], aim{s.off, s.plan.kind}) })
		}
		if u.data.release != nil && !u.types {
			u.data.release(u.off, u.end) // few of its entries will be read again
		}
		return all
	})[off]
}

// inAlt marks offsets in the file that dwz made.
const inAlt = 1 << 63

// tellAims calls tell with what the scan's entry refers to, if the entry is a function or an
// inlined call: offsets, with inAlt set if they are in another file.
func (s *scan) tellAims(tell func(off uint64)) {
	if s.plan.kind != kindFunc && s.plan.kind != kindInlined {
		return
	}
	for _, i := range [...]slot{slotOrigin, slotSpec} {
		if off, ok := s.altOrigin(i); ok && off < inAlt {
			tell(off | inAlt)
		}
	}
	a, _, ok := s.origin(slotOrigin)
	if ok {
		tell(a)
	}
	if b, _, ok2 := s.origin(slotSpec); ok2 && (!ok || a != b) {
		tell(b)
	}
}

// searchAims searches for references by the bytes of the offset, and reads the cells that
// contain these bytes. ok is false if the unit writes references in another form.
func (u *Unit) searchAims(x *nameIndex, home *Unit, off uint64) (out []aim, ok bool) {
	if u.types || u.planner().odd {
		return nil, false
	}
	pats := make([][]byte, 0, 2)
	if home.off == u.off {
		pats = append(pats, binary.LittleEndian.AppendUint32(nil, uint32(off-u.off)))
	}
	if home.off != u.off || u.planner().distant {
		pats = append(pats, binary.LittleEndian.AppendUint32(nil, uint32(off)))
	}
	if u.end >= 1<<32 {
		return nil, false
	}
	b := u.bytes()
	for _, pat := range pats {
		for at := u.first; at < u.end; {
			i := bytes.Index(b[at:], pat)
			if i < 0 {
				break
			}
			// The entry starts in this cell, or starts in the one before and extends to here.
			end := min(((at+uint64(i))>>cellBits+1)<<cellBits, u.end)
			from, known := u.before(x, at+uint64(i))
			if !known {
				return nil, false
			}
			for s := u.scan(u.planner(), from, end); s.next(); {
				s.tellAims(func(to uint64) {
					if to == off {
						out = append(out, aim{s.off, s.plan.kind})
					}
				})
			}
			at = end
		}
	}
	slices.SortFunc(out, func(x, y aim) int { return cmp.Compare(x.off, y.off) })
	return slices.Compact(out), true
}

// before returns an entry of the unit from which a scan reaches the entry that has the byte at
// off. ok is false if the index has none.
func (u *Unit) before(x *nameIndex, off uint64) (at uint64, ok bool) {
	for c := int(off >> cellBits); ; c-- {
		if uint64(c)<<cellBits <= u.first {
			return u.first, true
		}
		if 2*c+1 >= len(x.cells)/8 {
			return 0, false
		}
		if at = x.cells.at64(2 * c); at < u.first || at >= u.end {
			return 0, false
		} else if at <= off {
			return at, true
		}
	}
}
