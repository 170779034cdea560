package engine

import (
	"testing"

	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// TestStanding: what makes way for a change is no ground of its plan.
func TestStanding(t *testing.T) {
	planned := &plan.Patch{At: 0x1010, Lock: 0x1015, Writes: []plan.Write{{At: 0x1010, Bytes: make([]byte, 5)}}}
	jump := newPatchOf(&planner.Patch{Plan: planned.Pack(nil)})
	jump.Armed = true
	st := &Site{Addr: 0x1000, Length: 3}
	for _, tt := range []struct {
		name         string
		site, jumped bool // makes way
		length, n    int
	}{
		{name: "both stay", length: 3, n: 2},
		{name: "the breakpoint makes way", site: true, n: 1},
		{name: "the jump makes way", jumped: true, length: 3, n: 1},
		{name: "nothing stays", site: true, jumped: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := standing{map[symbols.Addr]*Site{st.Addr: st}, planner.PageIndex[*Patch]{}, newOutgoing(), func(_, _ symbols.Addr) []plan.Range { return nil }}
			s.jumps.Add(jump)
			if tt.site {
				s.out.addSite(st)
			}
			if tt.jumped {
				s.out.addPatch(jump)
			}
			if n, ok := s.Breakpoint(st.Addr); n != tt.length || ok != (tt.length > 0) {
				t.Errorf("a breakpoint of %d bytes, %v", n, ok)
			}
			if got := s.Taken(0x1000, 0x1020); len(got) != tt.n {
				t.Errorf("%x is taken, want %d ranges", got, tt.n)
			}
		})
	}
}
