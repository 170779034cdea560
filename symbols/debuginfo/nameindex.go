package debuginfo

import (
	"cmp"
	"hash/crc32"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// nameIndex tells which units may have an entry of a name. It is exact but for
// hashes that are equal, so that a unit it names must still be searched.
type nameIndex struct {
	hashes []uint32 // sorted, each once
	starts []uint32 // of each hash's units in list; one more than hashes
	list   []uint32 // of positions in Units; none at all means in too many
	blind  []uint32 // units that could not be read: they may have any name
	refs   []uint32 // units that may refer to entries of others
}

// maxListed is in how many units a name may be before it is in too many: the
// name of a type that all include is of no use as a key.
const maxListed = 64

// nameHash is FNV-1a, folded to 32 bits.
func nameHash(b []byte) uint32 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return uint32(h>>32) ^ uint32(h)
}

// lookup gives the units that may have the name, in order; every is true when
// that could be all of them.
func (x *nameIndex) lookup(name string) (units []uint32, every bool) {
	h := nameHash([]byte(name))
	i := sort.Search(len(x.hashes), func(i int) bool { return x.hashes[i] >= h })
	if i == len(x.hashes) || x.hashes[i] != h {
		return x.blind, false
	}
	lo, hi := x.starts[i], x.starts[i+1]
	if lo >= hi || uint64(hi) > uint64(len(x.list)) {
		return nil, true
	}
	units = x.list[lo:hi]
	if len(x.blind) > 0 {
		units = slices.Concat(units, x.blind)
		slices.Sort(units)
		units = slices.Compact(units)
	}
	return units, false
}

// indexFrom is from how many bytes of .debug_info on an index is made: less is
// searched faster than one is read.
const indexFrom = 24 << 20

// index is the index of names, nil for a file that needs none. It is read from
// the store, or made and left there.
func (d *Data) index() *nameIndex {
	return d.indexed.get(func() *nameIndex {
		if len(d.sec.Info) < d.indexFrom || d.split {
			return nil
		}
		if d.store != nil {
			if x := readIndex(d.store.Load(), d.identity()); x != nil {
				return x
			}
		}
		x := d.makeIndex()
		if d.store != nil && x != nil {
			d.store.Save(x.bytes(d.identity()))
		}
		return x
	})
}

// identity tells one file's units from another's: the build-id that the store
// goes by could be forged, and formats change.
func (d *Data) identity() uint64 {
	h := crc32.NewIEEE()
	var b [8]byte
	put := func(v uint64) {
		for i := range b {
			b[i] = byte(v >> (8 * i))
		}
		h.Write(b[:])
	}
	for _, s := range [...][]byte{d.sec.Info, d.sec.Abbrev, d.sec.Str, d.sec.Line} {
		put(uint64(len(s)))
	}
	for _, u := range d.Units() {
		put(u.off)
	}
	return uint64(len(d.sec.Info))<<32 ^ uint64(h.Sum32())
}

// gathered is what one worker has found: by name, the units.
type gathered struct {
	byKey keyTable // of a string's place → position in names
	names []listed
	next  []link
	blind []uint32
	refs  []uint32
}

// listed is the units of one name: a chain of links from the last unit on.
type listed struct {
	hash uint32
	last uint32 // unit
	n    int32
	head int32
}

type link struct {
	unit uint32
	next int32
}

func (g *gathered) add(u *Unit, unit uint32, v Val) {
	// Strings of .debug_str are told apart by their place, which is cheaper
	// than by what they say.
	key := v.U | uint64(v.form)<<48
	var text []byte
	switch v.form {
	case formStrp, formGNUStrpAlt, formStrpSup:
	default:
		if text = u.stringOf(u.root(), v); len(text) == 0 {
			return
		}
		key = uint64(nameHash(text)) | 1<<63
	}
	at := g.byKey.at(key)
	i := *at - 1
	if i < 0 {
		if text == nil {
			text = u.stringOf(u.root(), v)
		}
		i = int32(len(g.names))
		*at = i + 1
		g.names = append(g.names, listed{hash: nameHash(text), last: ^uint32(0), head: -1})
	}
	l := &g.names[i]
	if l.last == unit || l.n > maxListed {
		return
	}
	l.last = unit
	if l.n++; l.n <= maxListed {
		g.next = append(g.next, link{unit, l.head})
		l.head = int32(len(g.next) - 1)
	}
}

// keyTable is a hash table of keys that aren't 0, whose values start as 0. It
// takes half the time of a map.
type keyTable struct {
	keys   []uint64
	values []int32
	used   int
}

// at is the place of a key's value, up to the next call.
func (t *keyTable) at(key uint64) *int32 {
	if 2*t.used >= len(t.keys) {
		old := *t
		n := max(1<<12, 2*len(old.keys))
		*t = keyTable{keys: make([]uint64, n), values: make([]int32, n), used: old.used}
		for i, k := range old.keys {
			if k != 0 {
				j := t.slot(k)
				t.keys[j], t.values[j] = k, old.values[i]
			}
		}
	}
	i := t.slot(key)
	if t.keys[i] == 0 {
		t.keys[i] = key
		t.used++
	}
	return &t.values[i]
}

func (t *keyTable) slot(key uint64) uint64 {
	mask := uint64(len(t.keys) - 1)
	i := key * 0x9e3779b97f4a7c15 >> 20 & mask
	for t.keys[i] != 0 && t.keys[i] != key {
		i = (i + 1) & mask
	}
	return i
}

// makeIndex reads all names, with as many workers as there are processors to
// have. nil means that a reader broke.
func (d *Data) makeIndex() *nameIndex {
	units := d.Units()
	workers := min(runtime.GOMAXPROCS(0), 8)
	all := make([]gathered, workers)
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
			for !broke.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(units) {
					return
				}
				g.unit(units[i], uint32(i))
			}
		})
	}
	wait.Wait()
	if broke.Load() {
		return nil
	}
	return merge(all)
}

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

// merge sorts what the workers have found by hash.
func merge(all []gathered) *nameIndex {
	type entry struct {
		hash   uint32
		worker int32
		name   int32
	}
	x := &nameIndex{}
	var entries []entry
	for w := range all {
		x.blind, x.refs = append(x.blind, all[w].blind...), append(x.refs, all[w].refs...)
		for i, l := range all[w].names {
			entries = append(entries, entry{l.hash, int32(w), int32(i)})
		}
		all[w].byKey = keyTable{}
	}
	slices.Sort(x.blind)
	slices.Sort(x.refs)
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	var units []uint32
	for i := 0; i < len(entries); {
		units = units[:0]
		many := false
		h := entries[i].hash
		for ; i < len(entries) && entries[i].hash == h; i++ {
			g := &all[entries[i].worker]
			l := g.names[entries[i].name]
			many = many || l.n > maxListed
			for at := l.head; at >= 0; at = g.next[at].next {
				units = append(units, g.next[at].unit)
			}
		}
		slices.Sort(units)
		units = slices.Compact(units)
		x.hashes = append(x.hashes, h)
		x.starts = append(x.starts, uint32(len(x.list)))
		if !many && len(units) <= maxListed {
			x.list = append(x.list, units...)
		}
	}
	x.starts = append(x.starts, uint32(len(x.list)))
	return x
}
