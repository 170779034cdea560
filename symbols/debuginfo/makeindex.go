package debuginfo

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// gathered is what one worker has found: by name, the units.
type gathered struct {
	places pairs // by the string's place in .debug_str
	shared pairs // by its place in the .debug_str of the file that dwz made
	hashes pairs // by its hash
	blind  []uint32
	refs   []uint32
}

// add notes a name. Strings of .debug_str are told apart by their place, which
// is cheaper than by what they say.
func (g *gathered) add(u *Unit, unit uint32, v Val) {
	switch v.form {
	case formStrp:
	case formGNUStrpAlt, formStrpSup:
		if v.U < 1<<32 {
			g.shared.add(uint32(v.U), unit)
			return
		}
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		off, ok := u.stringPlace(u.root(), v.U)
		if !ok {
			return
		}
		v.form, v.U = formStrp, off
	}
	if v.form == formStrp && v.U < 1<<32 {
		g.places.add(uint32(v.U), unit)
		return
	}
	if text := u.stringOf(u.root(), v); len(text) > 0 {
		g.hashes.add(nameHash(text), unit)
	}
}

// unit goes through a unit.
func (g *gathered) unit(u *Unit, i uint32) {
	p := u.planner()
	if p.refs {
		g.refs = append(g.refs, i)
	}
	if u.root().hasDwo || !u.names(p, func(s *spot) { g.add(u, i, s.v) }) {
		g.blind = append(g.blind, i)
	}
	if u.data.release != nil {
		u.data.release(u.off, u.end)
	}
}

// hashed turns all that was gathered into pairs by hash, sorted by it; the units
// of one are not, where several strings have it.
func (g *gathered) hashed(d *Data) []uint64 {
	texts := [...]struct {
		from *pairs
		str  []byte
		done func(from, to uint64)
	}{{&g.places, d.sec.Str, d.releaseStr}, {&g.shared, nil, nil}}
	if d.alt != nil {
		texts[1].str = d.alt.sec.Str
	}
	all := &g.hashes
	for _, t := range texts {
		list := t.from.sort()
		out := list[:0]
		last, hash, none := ^uint64(0), uint64(0), true
		held := uint64(0) // from where on pages may be in memory
		for _, v := range list {
			if v>>32 != last {
				last = v >> 32
				if t.done != nil && last-held > holdAtOnce/4 {
					t.done(held, last)
					held = last
				}
				rest := t.str[min(last, uint64(len(t.str))):]
				n := bytes.IndexByte(rest, 0)
				if none = n <= 0; !none {
					hash = uint64(nameHash(rest[:n])) << 32
				}
			}
			if !none {
				out = append(out, hash|v&0xffffffff)
			}
		}
		t.from.list = out
		if len(out) > len(all.list) {
			all, t.from = t.from, all
		}
		all.list = append(all.list, t.from.list...)
		t.from.list = nil
	}
	all.room.sort(all.list)
	out := all.list
	*g = gathered{blind: g.blind, refs: g.refs}
	return out
}

// makeIndex reads all names, with as many workers as there are processors to
// have, and gives the index in the form of files. nil means that a reader broke.
func (d *Data) makeIndex() []byte {
	units := d.Units()
	workers := min(runtime.GOMAXPROCS(0), 8)
	all, lists := make([]gathered, workers), make([][]uint64, workers)
	// What is gathered has no pointers: to collect garbage often costs little.
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	var room sortRoom
	var next atomic.Int64
	var broke atomic.Bool
	var wait sync.WaitGroup
	for w := range all {
		wait.Go(func() {
			// A file that is cut short meanwhile faults, here as in ReadDebug.
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if recover() != nil {
					broke.Store(true)
				}
			}()
			g := &all[w]
			g.places.room, g.shared.room, g.hashes.room = &room, &room, &room
			g.places.list = make([]uint64, 0, min(len(d.sec.Info)/128/workers, firstSort))
			for !broke.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(units) {
					break
				}
				g.unit(units[i], uint32(i))
			}
			lists[w] = g.hashed(d)
		})
	}
	wait.Wait()
	if broke.Load() {
		return nil
	}
	var blind, refs []uint32
	for i := range all {
		blind, refs = append(blind, all[i].blind...), append(refs, all[i].refs...)
	}
	slices.Sort(blind)
	slices.Sort(refs)
	// Once to count, once to write.
	var hashes, listed int
	merge(lists, func(_ uint32, units []uint32) { hashes, listed = hashes+1, listed+len(units) })
	b := newIndexBytes(hashes, listed, blind, refs)
	merge(lists, b.add)
	return b.finish(d.identity())
}

// merge tells each hash of the workers' lists, in order, and its units: none
// where they are too many to list.
func merge(lists [][]uint64, tell func(hash uint32, units []uint32)) {
	all := slices.Clone(lists)
	var units []uint32
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
		units = units[:0]
		for w, l := range all {
			i := 0
			for ; i < len(l) && l[i]>>32 == h; i++ {
				units = append(units, uint32(l[i]))
			}
			all[w] = l[i:]
		}
		slices.Sort(units)
		units = slices.Compact(units)
		if len(units) > maxListed {
			units = units[:0]
		}
		tell(uint32(h), units)
	}
}
