package debuginfo

import (
	"runtime"
	"slices"
	"sync/atomic"
)

// Who refers to an entry
//
// Link-time optimization and dwz make units that refer to entries of other units. Finding out
// which units do needs a pass through all of them. That is done once. Each reference is kept as
// two offsets, in eight bytes.

// aimTable has the functions and inlined calls of a file that refer to other entries as origin
// or specification. Each number has the offset of the entry referred to in its upper half, and
// the offset of the referring entry in its lower half. The lists are sorted.
type aimTable struct {
	own []uint64 // to entries of this file
	alt []uint64 // to entries of the file that dwz made
}

// maxAims limits a table of references, to 16 MB. A file with more is searched for each
// question.
const maxAims = 2 << 20

// aimed returns the table of the file's references. It is nil if the table would be too large,
// or if no unit refers to others. If an index is kept, the index has the references to the
// file's own entries.
func (d *Data) aimed() *aimTable {
	if d.split || d.alt == nil && (d.keeps() || !d.crosses()) || uint64(len(d.sec.Info)) >= 1<<32 {
		return nil
	}
	return d.aims.get(d.makeAims)
}

// makeAims goes through all units, using all processors.
func (d *Data) makeAims() *aimTable {
	units := d.Units()
	workers := max(1, min(runtime.GOMAXPROCS(0), maxSearchers, len(units)))
	parts := make([]aimTable, workers)
	var next, total atomic.Int64
	done := inParallel(workers, func(w int) {
		t := &parts[w]
		for total.Load() <= maxAims {
			i := int(next.Add(1)) - 1
			if i >= len(units) {
				return
			}
			before := len(t.own) + len(t.alt)
			t.unit(units[i])
			total.Add(int64(len(t.own) + len(t.alt) - before))
		}
	})
	if !done || total.Load() > maxAims {
		return nil
	}
	all := &aimTable{}
	for _, t := range parts {
		all.own, all.alt = append(all.own, t.own...), append(all.alt, t.alt...)
	}
	slices.Sort(all.own)
	slices.Sort(all.alt)
	return all
}

// unit adds the references of a unit. Tables that it makes of the unit aren't kept.
func (t *aimTable) unit(whole *Unit) {
	if whole.full() != whole {
		return // its entries are in another file, which has no references to this one
	}
	u, own := whole.copied(), !whole.data.keeps()
	s := u.scan(newPlanner(readAbbrevs(u.data.sec.Abbrev, u.abbrev), u.format()), u.first, u.end)
	for s.next() {
		s.tellAims(func(to uint64) {
			switch off := to &^ inAlt; {
			case off >= 1<<32:
			case to < inAlt && own:
				t.own = append(t.own, to<<32|s.off)
			case to >= inAlt:
				t.alt = append(t.alt, off<<32|s.off)
			}
		})
	}
	if u.data.release != nil {
		u.data.release(u.off, u.end)
	}
}

// of returns the offsets of the entries that refer to an entry, in order.
func (t *aimTable) of(off uint64, inAlt bool) (out []uint64) {
	list := t.own
	if inAlt {
		list = t.alt
	}
	i, _ := slices.BinarySearch(list, off<<32)
	for ; i < len(list) && list[i]>>32 == off; i++ {
		out = append(out, list[i]&(1<<32-1))
	}
	return out
}

// completionsOf returns the entries that refer to an entry of home, by the tables. ok is false
// if the tables can't answer.
func (d *Data) completionsOf(home *Unit, off uint64) (out []completion, ok bool) {
	shared := home.data != d
	if home.types || shared && (d.alt == nil || home.data != d.alt) || !shared && d.keeps() {
		return nil, false
	}
	t := d.aimed()
	switch {
	case t == nil:
		return nil, false
	case shared && d.alt.crosses():
		if out, ok = d.alt.completionsOf(home, off); !ok {
			return nil, false
		}
	case shared:
		for _, a := range home.aimsAt(home, off) {
			out = append(out, completion{home, a})
		}
	}
	for _, at := range t.of(off, shared) {
		u := d.unitAt(at, false)
		if u == nil {
			continue
		}
		if e, _, ok := u.entryAt(at); ok {
			out = append(out, completion{u, aim{at, kindOf(e.tag)}})
		}
	}
	return out, true
}
