package debuginfo

import (
	"maps"
	"math/rand"
	"slices"
	"testing"
)

// TestPairs: what comes out is what a set of pairs would hold, apart from keys
// of too many units, of which one more than are listed stay.
func TestPairs(t *testing.T) {
	for _, size := range []int{0, 1, 3000, 200_000} {
		rnd := rand.New(rand.NewSource(int64(size)))
		p := pairs{room: &sortRoom{}, limit: 1}
		want := map[uint64]bool{}
		units := map[uint32]int{}
		add := func(key, unit uint32) {
			v := uint64(key)<<32 | uint64(unit)
			if !want[v] && units[key] <= maxListed {
				want[v] = true
				units[key]++
			}
			p.add(key, unit)
		}
		for unit := range uint32(100) {
			add(7, unit) // in all of them
			for range size / 100 {
				key := rnd.Uint32() >> (rnd.Intn(4) * 8)
				add(key, unit)
				if rnd.Intn(8) == 0 {
					add(key, unit)
				}
			}
			if size > 3000 && unit%30 == 29 {
				p.sort() // in between, as when there are many
			}
		}
		got := p.sort()
		if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			t.Errorf("%d: %d pairs, want %d", size, len(got), len(want))
		}
		if again := p.sort(); !slices.Equal(again, got) {
			t.Error("sorted twice is another list")
		}
	}
}

// TestMerge: the workers' lists become one, with no unit twice.
func TestMerge(t *testing.T) {
	v := func(hash, unit uint64) uint64 { return hash<<32 | unit }
	many := []uint64{}
	for u := range uint64(maxListed + 1) {
		many = append(many, v(9, 2*u))
	}
	got := map[uint32][]uint32{}
	last := int64(-1)
	merge([][]uint64{{v(1, 4), v(1, 2), v(5, 1)}, {v(1, 2), v(1, 3)}, nil, many}, func(h uint32, units []uint32) {
		if int64(h) <= last {
			t.Errorf("%d behind %d", h, last)
		}
		last = int64(h)
		got[h] = slices.Clone(units)
	})
	want := map[uint32][]uint32{1: {2, 3, 4}, 5: {1}, 9: {}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
	merge(nil, func(uint32, []uint32) { t.Error("nothing has a hash") })
}

// BenchmarkPairs sorts what a worker gathers of a large file.
func BenchmarkPairs(b *testing.B) {
	rnd := rand.New(rand.NewSource(1))
	list := make([]uint64, 1<<20)
	for i := range list {
		list[i] = uint64(rnd.Uint32()>>6)<<32 | uint64(i>>13)
	}
	room := &sortRoom{}
	work := make([]uint64, len(list))
	b.SetBytes(int64(8 * len(list)))
	for b.Loop() {
		copy(work, list)
		room.sort(work)
	}
}
