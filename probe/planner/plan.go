package planner

import (
	"fmt"
	"slices"

	"kprobe/probe/plan"
)

// Plan says how a change is to be made. It is never modified.
type Plan struct {
	Text    uint64    // the state of the text for which it was made (Ground.Text)
	Traps   []Request // breakpoints
	Patches []*Patch  // jumps, with the bytes of their detours, in order of address
	// Courses say how the probes of the change will be armed.
	Courses map[*Probe]*Course
	Memory  []plan.Range // to be mapped for detours
	Pools   *Pools       // memory for instances; nil: none is needed
	Common  *Shared      // the code that the detours share; nil: none is needed
	Tally   *Tally       // the tally of the detours; nil: they count by themselves
}

// Lines lists everything that the plan would write, for tests: jumps in order of address, then breakpoints.
func (b *Plan) Lines() (out []string) {
	for _, p := range b.Patches {
		for q := p; q != nil; q = q.Island {
			s := fmt.Sprintf("%#x %v to %#x, %d bytes for %x, %x:", q.Plan.At, q.Plan.Tactic, q.Plan.Detour, q.Plan.Room, q.Plan.Displaced(), slices.Collect(q.Plan.Guards()))
			for _, w := range q.Plan.Writes() {
				s += fmt.Sprintf(" %#x %x", w.At, w.Bytes)
			}
			for i := range q.Stages {
				s += fmt.Sprintf(" %#x %x", uint64(q.Stages[i].Base), q.Text(i))
			}
			for _, w := range q.Wants {
				s += fmt.Sprintf(" %d/%d", w.P.Id, w.Kind)
			}
			out = append(out, s)
		}
	}
	for _, w := range b.Traps {
		why := w.P.Why
		if c := b.Courses[w.P]; c != nil {
			why = c.Why
		}
		out = append(out, fmt.Sprintf("breakpoint at %s: %d/%d, %s", w.Site.Name(), w.P.Id, w.Kind, why))
	}
	slices.Sort(out[len(out)-len(b.Traps):])
	return append(out, fmt.Sprint(b.Memory))
}
