package engine

import (
	"fmt"
	"slices"
)

// The seam for tests
//
// What tests of package probe see of a target beyond what the face uses, and how they
// change it behind the engine's back. The face uses none of it.

// NoMoreRenewals has the jumps of a program that kprobe has started stay as they are.
func (tg *Target) NoMoreRenewals() { tg.Renewal.tries = renewTries }

// allAgain is a change in which all probes of a target are armed anew.
func allAgain(tg *Target) *changeset {
	f := tg.newFinder()
	for p := range tg.Placed {
		f.probe(p)
		f.out.stay[p] = true
	}
	return &changeset{out: f.out}
}

// SeePlan tells the plan by which all probes of the target would be armed anew: its jumps in
// order of address, and its breakpoints.
func (tg *Target) SeePlan() ([]string, error) {
	b, err := tg.plan(allAgain(tg))
	if err != nil {
		return nil, err
	}
	return planned(b), nil
}

// planned tells all that a plan has written down of its jumps, in order of address.
func planned(b *batch) (out []string) {
	for _, p := range b.patches {
		for q := p; q != nil; q = q.island {
			s := fmt.Sprintf("%#x %v to %#x, %d bytes, %x for %x:", q.Plan.At, q.Plan.Tactic, q.Plan.Detour, q.Plan.Room, q.Plan.Writes, q.Plan.Displaced)
			for _, st := range q.Stages {
				s += fmt.Sprintf(" %#x %x", uint64(st.base), st.text)
			}
			for _, w := range q.Wants {
				s += fmt.Sprintf(" %d/%d", w.P.Id, w.Kind)
			}
			out = append(out, s)
		}
	}
	for _, w := range b.traps {
		out = append(out, fmt.Sprintf("%s %d", w.Site.Name, w.P.Id))
	}
	slices.Sort(out[len(out)-len(b.traps):])
	return append(out, fmt.Sprint(b.memory))
}
