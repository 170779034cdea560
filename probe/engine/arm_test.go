package engine

import (
	"testing"

	"kprobe/probe/assess"
	"kprobe/symbols"
)

// TestResolvedKeeps: places that are kept don't move, however many come.
func TestResolvedKeeps(t *testing.T) {
	for _, left := range []int{0, 1, placesAtOnce, 3*placesAtOnce + 1} {
		x := &resolved{left: left}
		var kept []*assess.Place
		for n := range 4 * placesAtOnce {
			kept = append(kept, x.keep(assess.Place{Site: symbols.Site{Addr: symbols.Addr(n)}}))
		}
		for n, at := range kept {
			if at.Site.Addr != symbols.Addr(n) {
				t.Fatalf("place %d of %d is at %v", n, left, at.Site.Addr)
			}
		}
	}
}
