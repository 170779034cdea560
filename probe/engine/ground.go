package engine

import (
	"slices"
	"sync"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// What a plan is made of
//
// The planner knows no process. What it needs of one is its ground: what stands in the
// text and where memory is free, the functions as their files have them, and what
// detours may do there. A plan is a function of that and of the places that are wanted:
// from a ground that a test has made it comes without any process.

// ground is what the planner knows of an address space. It changes nothing of it but
// what is known of functions.
type ground struct {
	text    uint64 // the state of the text that it is of
	stands  standing
	code    functions
	around  *survey.Around
	exits   *exits.Finder
	golang  *assess.Programs
	params  *detour.Params  // of detours; nil where no jump can come of the change
	file    symbols.Addr    // where the memory file lies
	shared  *detour.Shared  // the code that return probes share, as it was laid last; nil: it wasn't
	tallies []*detour.Tally // code that counts, where it was laid
	// breakpoints says that no jumps are wanted, shadowStack that calls must be calls,
	// stacks that callers must be seen on the stack.
	breakpoints, shadowStack, stacks bool
	// unwinder names what walks the stacks; "": nothing does.
	unwinder func() string
	// free tells the mappings, and where in them detours can lie.
	free func() ([]symbols.Mapping, *plan.Space, error)
	// before notes the bytes that a patch replaces. The error says why it can't be
	// written: something else has changed the text there.
	before func(*Patch) error
	// pause is called between two pieces of work, of which n of all are done in a step;
	// its error says that the plan is wanted no more.
	pause func(step string, n, all int) error
}

// ground is what a change is planned on. out makes way for it.
func (tg *Target) ground(out *outgoing) *ground {
	g := &ground{
		text: tg.text, stands: standing{tg.Sites, tg.Patches.pages, out}, code: tg.funcs, around: tg.around,
		exits: tg.exitFinder(), golang: &tg.Engine.golang, params: tg.Params,
		file: tg.Area.File.Base, shared: tg.newestShared(), tallies: tg.Area.Tallies,
		breakpoints: tg.Engine.Opts.NoOptimize, shadowStack: tg.shadowStack, stacks: tg.Engine.recordsStacks(),
		unwinder: sync.OnceValue(func() string { return tg.Engine.unwinds.In(tg.Space) }),
		before:   tg.readBefore,
	}
	g.free = func() ([]symbols.Mapping, *plan.Space, error) {
		maps, err := symbols.ReadMaps(tg.Proc.PID())
		if err != nil {
			return nil, nil, err
		}
		return maps, tg.codeSpace(maps), nil
	}
	g.pause = func(step string, n, all int) error {
		err := tg.answer()
		if err == nil && step != "" {
			tg.Engine.progress(step, n, all)
		}
		return err
	}
	return g
}

// standing is what stands in the text, and doesn't make way.
type standing struct {
	sites map[symbols.Addr]*Site
	jumps pageIndex
	out   *outgoing
}

// breakpoint gives the length of the instruction whose breakpoint is at an address; ok
// is false where there is none.
func (s *standing) breakpoint(a symbols.Addr) (length int, ok bool) {
	st := s.sites[a]
	if st == nil || s.out.hasSite(st) {
		return 0, false
	}
	return st.Length, true
}

// taken lists the bytes in [lo, hi) that breakpoints have, and all of the jumps that
// have bytes there.
func (s *standing) taken(lo, hi symbols.Addr) (out []plan.Range) {
	for a := lo; a < hi && len(s.sites) > 0; a++ {
		if n, ok := s.breakpoint(a); ok {
			out = append(out, plan.Range{Lo: uint64(a), Hi: uint64(a) + uint64(n)})
		}
	}
	for _, p := range s.jumps.near(uint64(lo), uint64(hi)) {
		if p.Armed && !s.out.hasPatch(p) && p.Plan.Owned(uint64(lo), uint64(hi)) {
			out = slices.AppendSeq(out, p.Plan.Owns())
		}
	}
	return out
}
