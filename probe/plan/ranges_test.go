package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRangeSet: a set of ranges has the addresses that were added and not removed, in as few ranges as there can be.
func TestRangeSet(t *testing.T) {
	const size = 6000
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s rangeSet
		var has [size]bool
		for step := range 12000 {
			lo := uint64(rng.IntN(size))
			r := Range{lo, min(size, lo+1+uint64(rng.IntN(1+4*int(seed))))}
			add := rng.IntN(3) > 0 || step < size/2
			if add {
				s.add(r)
			} else {
				s.remove(r)
			}
			for a := r.Lo; a < r.Hi; a++ {
				has[a] = add
			}
			at := uint64(rng.IntN(size))
			want := slices.Index(has[at:min(size, at+7)], true)
			u, hit := s.hit(Range{at, at + 7})
			if hit != (want >= 0) || hit && (u.Lo > at+uint64(want) || u.Hi <= at+uint64(want)) {
				t.Fatalf("seed %d, step %d: from %d on it has %v, %v; want %d", seed, step, at, u, hit, want)
			}
			if step%500 > 0 {
				continue
			}
			var list []Range
			for a := 0; a < size; a++ {
				if !has[a] {
					continue
				}
				if a == 0 || !has[a-1] {
					list = append(list, Range{uint64(a), 0})
				}
				list[len(list)-1].Hi = uint64(a) + 1
			}
			if got := slices.Concat(s.blocks...); !slices.Equal(got, list) {
				t.Fatalf("seed %d, step %d: it has the ranges %v, want %v", seed, step, got, list)
			}
			for i, b := range s.blocks {
				if len(b) == 0 || len(b) > blockMost {
					t.Fatalf("seed %d, step %d: block %d has %d ranges", seed, step, i, len(b))
				}
			}
		}
		if seed == 0 && len(s.blocks) < 2 {
			t.Errorf("all ranges are in one block")
		}
	}
}
