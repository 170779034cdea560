package cli

import (
	"slices"
	"testing"

	"kprobe/probe"
)

// TestBusiest: what makes up more than half of the hits between two looks goes, one after another,
// once, and never all.
func TestBusiest(t *testing.T) {
	at := func(hits ...uint64) (out []probe.Stats) {
		for i, n := range hits {
			out = append(out, probe.Stats{Place: string(rune('a' + i)), Hits: n})
		}
		return out
	}
	b := &busiest{}
	for i, c := range []struct {
		hits []uint64
		want []share
	}{
		{[]uint64{1e9, 0, 0, 0}, nil}, // what was before the first look
		{[]uint64{1e9 + 100, 0, 0, 0}, nil},
		{[]uint64{1e9 + 900_000, 31_000, 15_000, 15_000}, []share{{"a", "", 93}, {"b", "", 50}}},
		{[]uint64{2e9, 31_000, 16_000, 16_000}, nil},
		{[]uint64{2e9, 31_000, 86_000, 16_000}, []share{{"c", "", 100}}},
		{[]uint64{2e9, 31_000, 86_000, 9_916_000}, nil},
	} {
		if got := b.live(at(c.hits...)); !slices.Equal(got, c.want) {
			t.Errorf("look %d: %v, want %v", i, got, c.want)
		}
	}
}
