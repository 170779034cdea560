package engine

import (
	"slices"
	"testing"
	"time"

	"kprobe/probe/planner"
)

// Jumps at exits are written first and taken out last; else patches stay in their order.
func TestExitsFirst(t *testing.T) {
	patch := func(kinds ...planner.Kind) *Patch {
		p := newPatchOf(&planner.Patch{})
		for _, k := range kinds {
			p.Wants = append(p.Wants, planner.Request{Kind: k})
		}
		return p
	}
	none, entry, entries := patch(), patch(planner.Entry), patch(planner.Return, planner.Entry)
	both, exit, lone := patch(planner.Entry, planner.Exit), patch(planner.Exit), patch(planner.LoneExit)
	list := []*Patch{entry, lone, both, none, entries, exit}
	if got, want := exitsFirst(list), []*Patch{lone, none, exit, both, entry, entries}; !slices.Equal(got, want) {
		t.Errorf("written in the order %v, want %v", got, want)
	}
	if got, want := exitsLast(list), []*Patch{entry, entries, both, lone, none, exit}; !slices.Equal(got, want) {
		t.Errorf("taken out in the order %v, want %v", got, want)
	}
}

// A portion's steps become shorter if they take long, and longer if they take a moment.
func TestNextStep(t *testing.T) {
	for _, c := range []struct {
		step int
		took time.Duration
		want int
	}{
		{64, 0, 128}, {portionStep, 0, portionStep}, {64, portionTime / 8, 64}, {256, portionTime, 128}, {leastStep, portionTime, leastStep},
	} {
		if got := nextStep(c.step, c.took); got != c.want {
			t.Errorf("%d in %v: %d, want %d", c.step, c.took, got, c.want)
		}
	}
}
