package planner

import (
	"iter"
	"slices"

	"kprobe/probe/memory"
	"kprobe/probe/plan"
)

// PageIndex finds patches by the pages that they change: there may be ten
// thousand, and every place that is armed asks. Patches stay in it when they
// are taken out.
type PageIndex[P Owner] map[uint64][]P

// Owner is a patch that has bytes of the text.
type Owner interface {
	comparable
	Owns() iter.Seq[plan.Range]
}

// Add enters a patch, and the island that goes with it, under its pages.
func (x PageIndex[P]) Add(p P) {
	for r := range p.Owns() {
		for page := r.Lo / memory.PageSize; page <= (r.Hi-1)/memory.PageSize; page++ {
			if !slices.Contains(x[page], p) {
				x[page] = append(x[page], p)
			}
		}
	}
}

// Near gives the patches that may change something in [lo, hi), and others of
// the same pages; one may come twice.
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

// Drop takes a patch out.
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
