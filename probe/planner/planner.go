package planner

import (
	"slices"
	"sort"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/gocode"
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How a change is planned
//
// A batch's probes are planned function by function. Each gets a tactic (probe/plan). If that
// is a jump, its detours are assembled (probe/detour), for the addresses at which they will
// lie. A probe that can't be a jump is a breakpoint, and its course says why.
//
// The planner knows neither process nor session, and writes nothing. From the wanted places and
// what it is told about the process (ground.go) it makes a plan, which probe/engine builds and
// commits, or drops. While the planner works, the engine may answer stops (Ground.Pause): the
// plan says for which state of the text it was made.

// planner plans one change.
type planner struct {
	ground  *Ground
	own     []symbols.Addr // addresses of new breakpoints of kprobe's own
	params  detour.Params  // of detours, with the sketch of the stage that is built
	staged  detour.Params  // those of the stage that is built (goParams)
	courses map[*Probe]*Course
	slab    []Course // for the next courses
	last    struct { // that was asked for: most questions are for the same probe as the one before
		of     *Probe
		course *Course
	}
	space    *plan.Space  // free room for detours
	wanted   []plan.Range // the bytes of the batch's places, in order of address
	pools    *Pools
	common   *Shared
	tally    *Tally
	prepared map[*assess.Function]preparedFunction
	texts    Texts
	mover    insn.Relocator
	near     []plan.Range   // the bytes that taken has listed last
	sites    functionSites  // of the function that is planned
	probeIn  []detour.Probe // of the last stage (probesOf)
	// manyFree says that many return probes may use a common table of calls.
	manyFree bool
	// manyCounted says that the returns of many functions are only counted.
	manyCounted bool
	// sketches are the sketches of stages whose size was computed (room). generous says that the
	// size must suffice for the largest copies.
	sketches map[stageKey]*detour.Sketch
	shapes   map[shape]sized
	generous bool
	// code is the function that is planned.
	code *assess.Function
}

// Plan makes a plan for what is wanted.
func (g *Ground) Plan(want Wanted) (*Plan, error) {
	o := &planner{ground: g, own: want.Own, courses: map[*Probe]*Course{}}
	ws := want.Requests
	out := &Plan{Text: g.Text, Traps: ws, Courses: o.courses}
	if g.Breakpoints {
		return out, nil
	}
	for {
		goes := o.goCalls(ws)
		err := o.plan(want.Avoid, ws, out)
		if err != nil || !slices.ContainsFunc(goes, func(p *Probe) bool { return o.course(p).ByExits == nil }) {
			return out, err
		}
		// A return probe of a Go function has become a breakpoint: plan again without its jumps.
	}
}

// stageKey identifies a stage of a plan.
type stageKey struct {
	at   symbols.Addr
	last *Probe
	kind Kind
	way  detour.Passing
	n    int
}

func keyOf(ws []Request) stageKey {
	last := ws[len(ws)-1]
	return stageKey{last.Site.Addr, last.P, last.Kind, last.Passing, len(ws)}
}

// course says how the plan arms a probe. At first it is a copy of how the probe is armed now.
func (o *planner) course(p *Probe) *Course {
	if p == o.last.of {
		return o.last.course
	}
	c := o.courses[p]
	if c == nil {
		if len(o.slab) == 0 {
			o.slab = make([]Course, courseSlab)
		}
		c, o.slab = &o.slab[0], o.slab[1:]
		*c = p.Course
		o.courses[p] = c
	}
	o.last.of, o.last.course = p, c
	return c
}

// courseSlab is how many courses are made at once.
const courseSlab = 32

// occupied reports whether an address has a breakpoint that doesn't give way.
func (o *planner) occupied(a symbols.Addr) bool {
	_, ok := o.ground.Stands.Breakpoint(a)
	return ok
}

// ampleReturns is from how many return probes on the entries of a plan are short. A longer one
// takes 113 bytes more.
const ampleReturns = 256

// plan makes one attempt at a plan. avoid are ranges that only seem free.
func (o *planner) plan(avoid []plan.Range, ws []Request, out *Plan) error {
	returns, busy, err := o.judge(ws)
	if err != nil {
		return err
	}
	groups, rest, err := o.group(ws, busy)
	out.Traps, out.Patches, out.Memory, out.Pools, out.Common, out.Tally = rest, nil, nil, nil, nil, nil
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		o.addExits(ws, groups, nil)
		return nil
	}
	o.params = *o.ground.Params // not nil: some request can be a jump
	o.params.Scratch, o.params.Ample = &detour.Scratch{}, len(returns) < ampleReturns
	maps, space, err := o.ground.Free()
	if err != nil {
		return err
	}
	o.space = space
	for _, r := range avoid {
		o.space.Exclude(r)
	}
	o.leaveForCopies(maps, ws)
	if maps, err = o.planShared(maps, groups, len(returns) > 0, avoid); err != nil {
		return err
	}
	if err := o.planPools(maps, returns, avoid); err != nil {
		return err
	}
	if err = o.planTally(maps, groups, avoid); err != nil {
		return err
	}
	rest = o.addExits(ws, groups, rest)
	o.shapes = map[shape]sized{}
	o.wanted, o.sketches, o.prepared = wantedBytes(groups), map[stageKey]*detour.Sketch{}, map[*assess.Function]preparedFunction{}
	defer func() { o.sketches = nil }()
	patches, left, err := o.functions(groups, len(ws) >= LetGoFrom)
	if err != nil {
		return err
	}
	rest = append(rest, left...)
	sort.Slice(patches, func(i, j int) bool { return patches[i].Plan.At < patches[j].Plan.At })
	patches, rest = o.dropConflicting(patches, ws, rest)
	if patches, rest, err = o.dropOccupied(patches, rest); err != nil {
		return err
	}
	out.Patches, out.Traps = o.allOrNone(patches, ws, rest)
	if len(out.Patches) > 0 {
		out.Memory, out.Pools, out.Common, out.Tally = o.space.Fresh(), o.pools, o.common, o.tally
	}
	return nil
}

// leaveForCopies reserves addresses in reach of each module for the copies of all probed instructions.
// Detours may not lie there. Which instructions will be breakpoints, and need a copy, isn't known
// before all detours have their places; and detours may take any free place in reach.
func (o *planner) leaveForCopies(maps []symbols.Mapping, ws []Request) {
	type need struct {
		lo, hi symbols.Addr
		n      int
	}
	byModule := map[*symbols.Module]*need{}
	for i := range ws {
		a := ws[i].Site.Addr
		x := byModule[ws[i].Site.Module]
		if x == nil {
			x = &need{lo: a}
			byModule[ws[i].Site.Module] = x
		}
		x.lo, x.hi, x.n = min(x.lo, a), max(x.hi, a), x.n+1
	}
	for _, x := range byModule {
		size := memory.CopiesSize(x.n)
		if at, ok := memory.FindGap(maps, x.lo, x.hi, size, nil); ok {
			o.space.Exclude(plan.Range{Lo: uint64(at), Hi: uint64(at) + size})
			maps = withMapping(maps, at, size)
		}
	}
}

// judge finds the return probes whose returns jumps may see, and the addresses that must have a
// breakpoint.
func (o *planner) judge(ws []Request) (returns []*Probe, busy map[symbols.Addr]bool, err error) {
	busy = map[symbols.Addr]bool{}
	for _, a := range o.own {
		busy[a] = true
	}
	o.countReturns(ws)
	for _, w := range ws {
		if err := o.ground.Pause("", 0, 0); err != nil {
			return nil, nil, err
		}
		if o.jumps(w) {
			continue
		}
		if w.Kind == Return && o.followReturn(w) == "" {
			returns = append(returns, w.P)
		} else if w.Kind != Entry && (w.Kind != LoneExit || w.Conditional) || w.Kind == Entry && w.P.Rarely().Handlers != "" {
			busy[w.Site.Addr] = true
		}
	}
	o.findAlone(returns)
	return returns, busy, nil
}

// group groups the requests that may be jumps by function. rest has the others, for breakpoints.
func (o *planner) group(ws []Request, busy map[symbols.Addr]bool) (groups map[*assess.Function][]Request, rest []Request, err error) {
	groups = map[*assess.Function][]Request{}
	functionOf, stop := o.ground.Code.decodedAhead(ws)
	defer stop()
	for i, w := range ws {
		if err := o.ground.Pause("reading functions", i, len(ws)); err != nil {
			return nil, nil, err
		}
		if o.jumps(w) {
			continue // addExits adds it
		}
		why := o.unoptimizable(w, busy)
		var f *assess.Function
		if why == "" {
			if f, err = functionOf(w.Site); err != nil {
				why = err.Error()
			} else if !atStart(w.Site) && f.Sweep.StackStrays(uint64(w.Site.Addr)) {
				why = "the stack pointer may not point to a stack here"
			} else if w.Site.Module.File.IsGo() {
				var stack gocode.Stack
				stack, why = o.goStack(f, w)
				w.setStack(stack)
			}
		}
		if why != "" {
			o.course(w.P).Why = why
			rest = append(rest, w)
		} else {
			if groups[f] == nil {
				groups[f] = make([]Request, 0, 1+o.exitsOf(w))
			}
			groups[f] = append(groups[f], w)
		}
		if f != nil && len(ws) >= LetGoFrom {
			f.Release()
		}
	}
	return groups, o.together(groups, rest), nil
}

// exitsOf is how many exits addExits will add for a request. Nearly always all are in its own function.
func (o *planner) exitsOf(w Request) int {
	if w.Kind == Return {
		if x := o.course(w.P).ByExits; x != nil {
			return len(x.Exits)
		}
	}
	return 0
}

// WhyOther is the reason of a probe that is a breakpoint only because another probe at its place is one.
const WhyOther = "a breakpoint of another probe is there"

// together moves requests from groups to rest if rest has another request for the same place: a jump
// there would hide the breakpoint.
func (o *planner) together(groups map[*assess.Function][]Request, rest []Request) []Request {
	trapped := make(map[symbols.Addr]bool, len(rest))
	for _, w := range rest {
		trapped[w.Site.Addr] = true
	}
	for f, ws := range groups {
		kept := ws[:0]
		for _, w := range ws {
			if !trapped[w.Site.Addr] {
				kept = append(kept, w)
				continue
			}
			o.course(w.P).Why = WhyOther
			rest = append(rest, w)
		}
		if groups[f] = kept; len(kept) == 0 {
			delete(groups, f)
		}
	}
	return rest
}

// unoptimizable is the reason why a request must be a breakpoint, whatever the code around its place is; ""
// if it may be a jump.
func (o *planner) unoptimizable(w Request, busy map[symbols.Addr]bool) string {
	if w.Kind == Return {
		if why := o.followReturn(w); why != "" {
			return why
		}
	}
	if why := w.TrapsByKind(); why != "" {
		return why
	}
	if busy[w.Site.Addr] || o.occupied(w.Site.Addr) {
		return WhyOther
	}
	return w.TrapsByPlace()
}
