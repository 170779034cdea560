package debuginfo

import (
	"bytes"
	"slices"
	"sort"
	"sync"
)

// filesIndex says which units' line tables mention a file. It is safe for concurrent use.
type filesIndex struct {
	mu    sync.Mutex
	base  string // the name that was asked for last
	units []*Unit
	asked int
	made  bool
	pairs []uint64 // hash of a file's last element, unit; sorted
	many  bool     // too many for pairs
}

// Limits on the index of files: how many names are searched in the tables before the index is
// made, and how many pairs it may have.
const (
	fewFiles = 2
	maxPairs = 4 << 20
)

// UnitsOf returns the units whose line tables have a file with this last element of its name,
// ordered by offset. It may return others, too. For "" it returns all units. The slice is
// shared.
func (d *Data) UnitsOf(base string) []*Unit {
	x := &d.files
	if base == "" {
		return d.Units()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if base == x.base {
		return x.units
	}
	x.asked++
	if x.asked > fewFiles && !x.made {
		x.pairs, x.many = d.filePairs()
		x.made = true
	}
	var out []*Unit
	if x.made && !x.many {
		hash := uint64(nameHash([]byte(base))) << 32
		for i := sort.Search(len(x.pairs), func(i int) bool { return x.pairs[i] >= hash }); i < len(x.pairs) && x.pairs[i]>>32 == hash>>32; i++ {
			out = append(out, d.Units()[uint32(x.pairs[i])])
		}
	} else {
		want := []byte(base)
		for _, u := range d.Units() {
			if u.namesFile(want) {
				out = append(out, u)
			}
		}
	}
	x.base, x.units = base, out
	return out
}

// filePairs makes the index. many is true if it would be too large.
func (d *Data) filePairs() (pairs []uint64, many bool) {
	for i, u := range d.Units() {
		from := len(pairs)
		u.eachFile(func(name []byte) bool {
			pairs = append(pairs, uint64(nameHash(lastElement(name)))<<32|uint64(i))
			return len(pairs)-from < maxFiles
		})
		slices.Sort(pairs[from:])
		pairs = pairs[:from+len(slices.Compact(pairs[from:]))]
		if len(pairs) > maxPairs {
			return nil, true
		}
	}
	slices.Sort(pairs)
	return pairs, false
}

// namesFile reports whether the unit's line table has a file with this last
// element.
func (u *Unit) namesFile(base []byte) (found bool) {
	u.eachFile(func(name []byte) bool {
		found = bytes.HasSuffix(name, base) && len(lastElement(name)) == len(base)
		return !found
	})
	return found
}

// eachFile calls tell with the file names in the unit's line table, as they are written, until
// tell returns false.
func (u *Unit) eachFile(tell func(name []byte) bool) {
	t := u.root()
	if !t.hasLine {
		return
	}
	h, names, ok := u.openLines(t.line)
	if !ok {
		return
	}
	h.eachName(u, &names, func(n lineName) bool { return !n.file || tell(n.name) })
}

// lastElement returns what follows the last slash.
func lastElement(name []byte) []byte { return name[bytes.LastIndexByte(name, '/')+1:] }
