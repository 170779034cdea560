package planner

import (
	"slices"
	"testing"

	"kprobe/probe/plan"
)

func TestPageIndex(t *testing.T) {
	at := func(a uint64) *Patch {
		p := &plan.Patch{At: a, Lock: a + 5, Writes: []plan.Write{{At: a, Bytes: make([]byte, 5)}}}
		return &Patch{Plan: p.Pack(nil)}
	}
	low, across, high := at(0x1000), at(0x1ffe), at(0x3000)
	high.Island = at(0x2f80)
	high.Plan.Island = &high.Island.Plan
	x := PageIndex[*Patch]{}
	for _, p := range []*Patch{low, across, high} {
		x.Add(p)
	}
	tests := []struct {
		name   string
		lo, hi uint64
		want   []*Patch
	}{
		{"the first page", 0x1000, 0x1001, []*Patch{low, across}},
		{"behind a page's end", 0x2002, 0x2003, []*Patch{across, high}},
		{"an island's page", 0x2f80, 0x2f85, []*Patch{across, high}},
		{"two pages", 0x2fff, 0x3001, []*Patch{across, high, high}},
		{"nothing", 0x4000, 0x5000, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := x.Near(tt.lo, tt.hi); !slices.Equal(got, tt.want) {
				t.Errorf("%d patches, want %d", len(got), len(tt.want))
			}
		})
	}
}
