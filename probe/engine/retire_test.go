package engine

import (
	"testing"

	"kprobe/probe/planner"
)

// numbered is a retirement of code that has served a probe, and of the probe, which a later change has removed.
func numbered() (x *retirement, code, removal *retired, p *Placed) {
	p = &Placed{}
	served := &Patch{Patch: &planner.Patch{Wants: []planner.Request{{P: &p.Probe}}}}
	code = &retired{patches: []*Patch{served}, quiet: true, at: 10}
	removal = &retired{probes: []*Placed{p}, quiet: true, vacated: true, at: 20}
	return &retirement{list: []*retired{code, removal}}, code, removal, p
}

// A probe keeps its number until all code that has served it is vacated, and all records up to then are passed on.
func TestTakeEmptyNumbers(t *testing.T) {
	x, code, _, _ := numbered()
	at := func(now uint64) []*retired {
		empty, _ := x.takeEmpty(func() uint64 { return now })
		return empty
	}
	if got := at(30); len(got) != 0 {
		t.Errorf("while a call is active that returns by the code, %d changes are empty", len(got))
	}
	code.vacated, code.at = true, 40 // its last call has returned meanwhile
	for range 2 {
		if got := at(30); len(got) != 0 {
			t.Errorf("before its record is passed on, %d changes are empty", len(got))
		}
	}
	if got := at(50); len(got) != 2 || x.Len() != 0 {
		t.Errorf("in the end, %d changes are empty", len(got))
	}
}

// A probe that is armed again keeps its number.
func TestTakeBack(t *testing.T) {
	x, _, removal, p := numbered()
	other := &Placed{}
	removal.probes = append(removal.probes, other)
	if got := x.takeBack(map[*Placed]bool{p: true, {}: true}); len(got) != 1 || got[0] != p {
		t.Errorf("taken back are %v", got)
	}
	if len(removal.probes) != 1 || removal.probes[0] != other {
		t.Errorf("still to be released are %v", removal.probes)
	}
}
