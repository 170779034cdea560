package debuginfo

import (
	"encoding/binary"
	"hash/crc32"
	"sort"
)

// nameIndex says where entries of a name may be, and which function has the code at an
// address. Names with equal hashes are not distinguished, so the cells that it returns must
// still be searched. It is laid out as in its file: a question reads only a few of millions of
// numbers.
type nameIndex struct {
	names [2]hashTable // of functions, of others
	cells numbers
	funcs numbers
	units numbers
	links numbers
	blind []uint32 // units that could not be read: they may have any name
}

// hashTable finds cells by the hash of a name.
type hashTable struct {
	hashes numbers // sorted, each once
	starts numbers // of each hash's cells in list; one more than hashes
	list   numbers // no cells means that there are too many
}

// The kinds of names that are told apart.
const (
	ofFuncs = iota
	ofOthers
)

// numbers is a list of 32-bit numbers, little-endian.
type numbers []byte

func (n numbers) len() int { return len(n) / 4 }

func (n numbers) at(i int) uint32 { return binary.LittleEndian.Uint32(n[4*i:]) }

// at64 returns the i-th number of 64 bits.
func (n numbers) at64(i int) uint64 { return binary.LittleEndian.Uint64(n[8*i:]) }

// slice returns the numbers from lo up to but without hi.
func (n numbers) slice(lo, hi int) []uint32 {
	out := make([]uint32, hi-lo)
	for i := range out {
		out[i] = n.at(lo + i)
	}
	return out
}

// maxListed is the largest number of cells that are listed for a name. The name of a type that
// every unit includes is no use as a key.
const maxListed = 256

// nameHash is FNV-1a, folded to 32 bits.
func nameHash(b []byte) uint32 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return uint32(h>>32) ^ uint32(h)
}

// lookup returns the cells that may have the name, in order. every is true if any cell may
// have it. Blind units are not included.
func (t *hashTable) lookup(name string) (cells []uint32, every bool) {
	h := nameHash([]byte(name))
	n := t.hashes.len()
	i := sort.Search(n, func(i int) bool { return t.hashes.at(i) >= h })
	if i == n || t.hashes.at(i) != h {
		return nil, false
	}
	if i+1 >= t.starts.len() {
		return nil, true
	}
	lo, hi := int(t.starts.at(i)), int(t.starts.at(i+1))
	if lo >= hi || hi > t.list.len() {
		return nil, true
	}
	return t.list.slice(lo, hi), false
}

// part is a range of a unit's entries: those that start at from or later, and before to.
type part struct {
	u        *Unit
	from, to uint64
	searched bool // its bytes contain the name
}

// cell returns the parts of units that are in a cell.
func (d *Data) cell(x *nameIndex, out []part, c uint32) []part {
	start := uint64(c) << cellBits
	end := start + cellSize
	if start >= uint64(len(d.sec.Info)) || 2*int(c)+1 >= len(x.cells)/8 {
		return out
	}
	list := d.Units()
	i := sort.Search(len(list), func(i int) bool { return list[i].end > start })
	for ; i < len(list) && list[i].off < end; i++ {
		u := list[i]
		from := u.first
		if u.off < start {
			from = x.cells.at64(2 * int(c))
		}
		if from >= u.first && from >= start && from < min(u.end, end) {
			out = append(out, part{u: u, from: from, to: min(u.end, end)})
		}
	}
	return out
}

// spanAt finds spans that hold an address, beginning with those that start last, and asks use
// whether one will do. It examines a limited number of spans.
func spanAt(list numbers, pc uint64, use func(off uint64) bool) {
	n := len(list) / 24
	i := sort.Search(n, func(i int) bool { return list.at64(3*i) > pc }) - 1
	for steps := 0; i >= 0 && steps < maxSpanSteps; i, steps = i-1, steps+1 {
		if pc < list.at64(3*i+1) && use(list.at64(3*i+2)) {
			return
		}
	}
}

// maxSpanSteps limits how far back spans are searched for one that holds an address. Most
// spans aren't within others.
const maxSpanSteps = 4096

// linked returns the units that refer to entries of the unit at a position.
func (x *nameIndex) linked(unit uint32) (out []uint32) {
	n := len(x.links) / 8
	i := sort.Search(n, func(i int) bool { return x.links.at64(i)>>32 >= uint64(unit) })
	for ; i < n && x.links.at64(i)>>32 == uint64(unit); i++ {
		out = append(out, uint32(x.links.at64(i)))
	}
	return out
}

// How many bytes of .debug_info make an index worth while, because fewer are searched faster, and
// how many make it worth keeping in a file, because for fewer it is made as fast as it is read.
const (
	indexFrom = 1 << 20
	keepFrom  = 24 << 20
)

// index returns the index of names, or nil for a file that needs none. It reads the index from
// the store, or makes it and saves it there.
func (d *Data) index() *nameIndex {
	if x := d.kept(); x != nil {
		return x
	}
	return d.indexed.get(func() *nameIndex {
		if !d.indexes() {
			return nil
		}
		b := d.makeIndex()
		if d.store != nil && b != nil && d.keeps() {
			d.store.Save(b)
		}
		x := readIndex(b, d.identity())
		d.made.Store(x)
		return x
	})
}

// ready returns the index if it exists already. It doesn't make it.
func (d *Data) ready() *nameIndex {
	if x := d.made.Load(); x != nil {
		return x
	}
	return d.kept()
}

// indexes reports whether the file is large enough to have an index.
func (d *Data) indexes() bool { return len(d.sec.Info) >= d.indexFrom && !d.split }

// keeps reports whether the file is so large that its index is kept. Such an index also says
// which units refer to which.
func (d *Data) keeps() bool { return len(d.sec.Info) >= d.keepFrom && !d.split }

// kept returns the index from the store, or nil.
func (d *Data) kept() *nameIndex {
	return d.loaded.get(func() *nameIndex {
		if !d.keeps() || d.store == nil {
			return nil
		}
		return readIndex(d.store.Load(), d.identity())
	})
}

// identity tells one file's units from another's. The build-id by which the store finds an
// index could be forged, and formats change.
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
