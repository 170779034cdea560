package engine

import (
	"slices"

	"kprobe/probe/memory"
)

// pageIndex finds patches by the pages that they change: there may be ten
// thousand, and every place that is armed asks. Patches stay in it when they
// are taken out.
type pageIndex map[uint64][]*Patch

// add enters a patch, and the island that goes with it, under its pages.
func (x pageIndex) add(p *Patch) {
	for r := range p.Plan.Owns() {
		for page := r.Lo / memory.PageSize; page <= (r.Hi-1)/memory.PageSize; page++ {
			if !slices.Contains(x[page], p) {
				x[page] = append(x[page], p)
			}
		}
	}
}

// near gives the patches that may change something in [lo, hi), and others of
// the same pages; one may come twice.
func (x pageIndex) near(lo, hi uint64) []*Patch {
	first, last := lo/memory.PageSize, (hi-1)/memory.PageSize
	if first == last {
		return x[first]
	}
	var out []*Patch
	for page := first; page <= last; page++ {
		out = append(out, x[page]...)
	}
	return out
}

// drop takes a patch out.
func (x pageIndex) drop(p *Patch) {
	for r := range p.Plan.Owns() {
		for page := r.Lo / memory.PageSize; page <= (r.Hi-1)/memory.PageSize; page++ {
			if x[page] = remove(x[page], p); len(x[page]) == 0 {
				delete(x, page)
			}
		}
	}
}
