package debuginfo

import (
	"slices"
	"sort"
)

// nesting is the entries of a unit that have children, by offset.
type nesting struct {
	list  []nest
	inner []int32 // indices in list of the open entries, innermost last
	to    uint32  // nothing is known from here on
}

// maxNests limits how many entries of a unit are noted.
const maxNests = 4 << 20

// nest is an entry with children: its offset, where its children end, and the index in the
// list of the entry around it, -1 for none. Offsets count from the unit's start.
type nest struct {
	off, end uint32
	around   int32
}

// open notes an entry. It reports whether there is room for more.
func (n *nesting) open(off uint64) bool {
	around := int32(-1)
	if k := len(n.inner); k > 0 {
		around = n.inner[k-1]
	}
	n.inner = append(n.inner, int32(len(n.list)))
	n.list = append(n.list, nest{uint32(off), 0, around})
	return len(n.list) < maxNests
}

func (n *nesting) close(end uint64) {
	k := len(n.inner) - 1
	n.list[n.inner[k]].end = uint32(end)
	n.inner = n.inner[:k]
}

// nesting notes the unit's entries that have children, up to damage.
func (u *Unit) nesting() *nesting {
	return u.nests.get(func() *nesting {
		n := &nesting{}
		if u.end-u.off >= 1<<32 {
			return n
		}
		s := u.scan(u.planner(), u.first, u.end)
		s.nest = n
		for s.next() {
		}
		n.to = uint32(u.end - u.off)
		if s.bad {
			n.to = 0
			if k := len(n.list); k > 0 {
				n.to = n.list[k-1].off
			}
		}
		for len(n.inner) > 0 {
			n.close(u.end - u.off)
		}
		return n
	})
}

// path finds the entries from the unit's first one down to the one at off, which is last. It
// returns nil if there is no entry at off.
func (u *Unit) path(off uint64) []Entry {
	if x := u.data.ready(); x != nil && !u.types {
		if out := u.pathBy(x, off); out != nil {
			return out
		}
	}
	e, _, ok := u.entryAt(off)
	if !ok || e.tag == 0 {
		return nil
	}
	out := []Entry{e}
	nests, at := u.nesting(), uint32(off-u.off)
	if at >= nests.to {
		return nil
	}
	list := nests.list
	i := int32(sort.Search(len(list), func(i int) bool { return list[i].off >= at })) - 1
	for ; i >= 0; i = list[i].around {
		if list[i].end <= at {
			continue
		}
		e, _, ok := u.entryAt(u.off + uint64(list[i].off))
		if !ok {
			return nil
		}
		out = append(out, e)
	}
	if top := out[len(out)-1]; top.off != u.first {
		return nil
	}
	slices.Reverse(out)
	return out
}
