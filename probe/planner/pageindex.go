package planner

import (
	"iter"
	"slices"

	"kprobe/probe/memory"
	"kprobe/probe/plan"
)

// PageIndex finds patches by the pages that they change. It makes lookups fast with tens of thousands of
// patches. A patch that is removed from the text stays in the index until Drop.
type PageIndex[P Owner] map[uint64][]P

// Owner is a patch that has bytes of the text.
type Owner interface {
	comparable
	Owns() iter.Seq[plan.Range]
}

// Add adds a patch with its island.
func (x PageIndex[P]) Add(p P) {
	for r := range p.Owns() {
		for page := r.Lo / memory.PageSize; page <= (r.Hi-1)/memory.PageSize; page++ {
			if !slices.Contains(x[page], p) {
				x[page] = append(x[page], p)
			}
		}
	}
}

// Near returns the patches that change pages of [lo, hi). They may have no byte in [lo, hi), and a patch
// may be there twice.
func (x PageIndex[P]) Near(lo, hi uint64) []P {
	first, last := lo/memory.PageSize, (hi-1)/memory.PageSize
	if first == last {
		return x[first]
	}
	var out []P
	for page := first; page <= last; page++ {
		out = append(out, x[page]...)
	}
	return out
}

// Drop removes a patch from the index.
func (x PageIndex[P]) Drop(p P) {
	for r := range p.Owns() {
		for page := r.Lo / memory.PageSize; page <= (r.Hi-1)/memory.PageSize; page++ {
			x[page] = slices.DeleteFunc(x[page], func(q P) bool { return q == p })
			if len(x[page]) == 0 {
				delete(x, page)
			}
		}
	}
}
