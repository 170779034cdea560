package debuginfo

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// makeIndex reads all units, with one worker for each available processor, and returns the
// index in the form in which files have it. nil means that a reader failed.
func (d *Data) makeIndex() []byte {
	units := d.Units()
	workers := max(1, min(runtime.GOMAXPROCS(0), 8, len(units)))
	// The workers' results have no pointers, so frequent garbage collection is cheap.
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	cells := make([]cellStart, len(d.sec.Info)>>cellBits+1)
	var room sortRoom
	all := make([]*gathered, workers)
	for w := range all {
		all[w] = &gathered{d: d, cells: cells}
		all[w].funcs.sortIn(&room)
		all[w].others.sortIn(&room)
	}
	var next atomic.Int64
	ok := inParallel(workers, func(w int) {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(units) {
				return
			}
			all[w].unit(units[i], uint32(i))
		}
	})
	if !ok {
		return nil
	}
	x := &indexParts{cells: cells}
	aimed := &gathered{d: d} // for names that perhaps no worker has noted
	aimed.funcs.sortIn(&room)
	var spans spanSet
	var cross crossRefs
	for _, g := range all {
		x.blind = append(x.blind, g.blind...)
		spans.list = append(spans.list, g.spans.list...)
		cross.aims = append(cross.aims, g.cross.aims...)
		cross.units = append(cross.units, g.cross.units...)
		g.spans, g.cross = spanSet{}, crossRefs{}
	}
	slices.Sort(x.blind)
	slices.Sort(cross.units)
	x.links = slices.Compact(cross.units)
	slices.Sort(cross.aims)
	funcs, others := make([][]uint64, workers+1), make([][]uint64, workers)
	ok = inParallel(workers, func(w int) {
		if w == 0 {
			aimed.names(slices.Compact(cross.aims))
			funcs[workers] = aimed.funcs.hashed(d)
			x.funcs = spans.sorted()
		}
		funcs[w], others[w] = all[w].funcs.hashed(d), all[w].others.hashed(d)
		if w == workers-1 {
			var ranges spanSet
			d.eachRange(func(u *Unit, r Range) { ranges.add(span{r, u.off}) })
			x.units = ranges.sorted()
		}
	})
	if !ok {
		return nil
	}
	x.names = [2][][]uint64{funcs, others}
	return x.bytes(d.identity())
}

// inParallel calls work from several goroutines. ok is false if one of them failed.
func inParallel(workers int, work func(w int)) (ok bool) {
	var broke atomic.Bool
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			// If a file is truncated meanwhile, reading it faults, as in ReadDebug.
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if recover() != nil {
					broke.Store(true)
				}
			}()
			work(w)
		})
	}
	wait.Wait()
	return !broke.Load()
}

// sortIn sets where the names are sorted.
func (n *names) sortIn(room *sortRoom) {
	n.places.room, n.shared.room, n.hashes.room = room, room, room
}

// names notes the names of entries that other units refer to.
func (g *gathered) names(offs []uint64) {
	for _, off := range offs {
		u := g.d.unitAt(off, false)
		if u == nil {
			continue
		}
		e, _, ok := u.entryAt(off)
		if !ok || kindOf(e.tag) != kindFunc {
			continue
		}
		for _, v := range e.vals {
			if i := slotOf(v.Attr); i == slotName || i == slotLink {
				if v.form == formString {
					if len(v.B) > 0 {
						g.funcs.hashes.add(nameHash(v.B), uint32(off>>cellBits))
					}
					continue
				}
				g.add(&g.funcs, u, off, v.U, v.form)
			}
		}
	}
}

// merge calls tell with each hash of the workers' lists, in order, and its cells. cells is
// empty if there are too many to list.
func merge(lists [][]uint64, tell func(hash uint32, cells []uint32)) {
	all := slices.Clone(lists)
	var cells []uint32
	for {
		h, any := ^uint64(0), false
		for _, l := range all {
			if len(l) > 0 {
				h, any = min(h, l[0]>>32), true
			}
		}
		if !any {
			return
		}
		cells = cells[:0]
		for w, l := range all {
			i := 0
			for ; i < len(l) && l[i]>>32 == h; i++ {
				cells = append(cells, uint32(l[i]))
			}
			all[w] = l[i:]
		}
		slices.Sort(cells)
		cells = slices.Compact(cells)
		if len(cells) > maxListed {
			cells = cells[:0]
		}
		tell(uint32(h), cells)
	}
}
