package debuginfo

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sort"
)

// nameIndex tells which units may have an entry of a name. It is exact but for
// hashes that are equal, so that a unit it names must still be searched. Most of
// it lies as it is kept in files: a question looks at a few numbers of millions.
type nameIndex struct {
	hashes numbers  // sorted, each once
	starts numbers  // of each hash's units in list; one more than hashes
	list   numbers  // of positions in Units; none at all means in too many
	blind  []uint32 // units that could not be read: they may have any name
	refs   []uint32 // units that may refer to entries of others
}

// numbers are numbers of 32 bits, little-endian.
type numbers []byte

func (n numbers) len() int { return len(n) / 4 }

func (n numbers) at(i int) uint32 { return binary.LittleEndian.Uint32(n[4*i:]) }

// ascending reports whether no number is less than the one before it.
func (n numbers) ascending() bool {
	before := uint32(0)
	for ; len(n) >= 4; n = n[4:] {
		v := binary.LittleEndian.Uint32(n)
		if v < before {
			return false
		}
		before = v
	}
	return true
}

// slice are the numbers from lo up to but without hi.
func (n numbers) slice(lo, hi int) []uint32 {
	out := make([]uint32, hi-lo)
	for i := range out {
		out[i] = n.at(lo + i)
	}
	return out
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
	n := x.hashes.len()
	i := sort.Search(n, func(i int) bool { return x.hashes.at(i) >= h })
	if i == n || x.hashes.at(i) != h {
		return x.blind, false
	}
	lo, hi := int(x.starts.at(i)), int(x.starts.at(i+1))
	if lo >= hi || hi > x.list.len() {
		return nil, true
	}
	units = x.list.slice(lo, hi)
	if len(x.blind) > 0 {
		units = append(units, x.blind...)
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
		b := d.makeIndex()
		if d.store != nil && b != nil {
			d.store.Save(b)
		}
		return readIndex(b, d.identity())
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
