package engine

import (
	"slices"
	"sync"

	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// ground is what the planner knows of the target. The patches in out give way for the planned change.
func (tg *Target) ground(out *outgoing) *planner.Ground {
	g := &planner.Ground{
		Text: tg.text, Stands: &standing{tg.Sites, tg.Patches.pages, out, tg.leftIn}, Code: tg.funcs, Around: tg.around,
		Exits: tg.exitFinder(), Golang: &tg.Engine.golang, Params: tg.Params,
		File: tg.Area.File.Base, Shared: tg.newestShared(), Tallies: tg.Area.Tallies,
		Breakpoints: tg.Engine.Opts.NoOptimize, ShadowStack: tg.shadowStack, Stacks: tg.Engine.recordsStacks(),
		FlagsRead: tg.Engine.flagsRead,
		Unwinder:  sync.OnceValue(func() string { return tg.Engine.unwinds.In(tg.Space) }),
		Before:    tg.readBefore,
	}
	g.Free = func() ([]symbols.Mapping, *plan.Space, error) {
		maps, err := symbols.ReadMaps(tg.Proc.PID())
		if err != nil {
			return nil, nil, err
		}
		return maps, tg.codeSpace(maps), nil
	}
	g.Pause = func(step string, n, all int) error {
		err := tg.answer()
		if err == nil && step != "" {
			tg.Engine.progress(step, n, all)
		}
		return err
	}
	return g
}

// standing finds the patches in the text that don't give way.
type standing struct {
	sites map[symbols.Addr]*Site
	jumps planner.PageIndex[*Patch]
	out   *outgoing
	left  func(lo, hi symbols.Addr) []plan.Range // of detached probes
}

// Breakpoint returns the length of the instruction with a breakpoint at an address; ok is false if
// there is no breakpoint.
func (s *standing) Breakpoint(a symbols.Addr) (length int, ok bool) {
	st := s.sites[a]
	if st == nil || s.out.hasSite(st) {
		return 0, false
	}
	return st.Length, true
}

// Taken lists the instructions in [lo, hi) that have breakpoints, all bytes of the jumps that have a byte there, and
// those there that belong to detached probes.
func (s *standing) Taken(lo, hi symbols.Addr) (out []plan.Range) {
	for a := lo; a < hi && len(s.sites) > 0; a++ {
		if n, ok := s.Breakpoint(a); ok {
			out = append(out, plan.Range{Lo: uint64(a), Hi: uint64(a) + uint64(n)})
		}
	}
	for _, p := range s.jumps.Near(uint64(lo), uint64(hi)) {
		if p.Armed && !s.out.hasPatch(p) && p.Plan.Owned(uint64(lo), uint64(hi)) {
			out = slices.AppendSeq(out, p.Plan.Owns())
		}
	}
	return append(out, s.left(lo, hi)...)
}
