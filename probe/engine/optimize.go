package engine

import (
	"slices"
	"sort"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How a change is planned
//
// A batch's probes are planned function by function: for each a tactic
// (probe/plan), and where one leads by a jump, its detours are assembled
// (probe/detour), for the addresses at which they will lie. What can't be a jump is
// a breakpoint, and its course says why.
//
// The planner knows neither process nor session, and writes nothing. From the places that
// are wanted and what it is told of the process (ground.go) it makes a batch, which is
// built (build.go) and committed (commit.go), or forgotten. While it works stops may be
// answered (answer.go): the batch says of which state of the text it is.

// planner plans one change.
type planner struct {
	ground   *ground
	own      []own         // breakpoints of kprobe's own that come
	params   detour.Params // of detours
	courses  map[*Placed]*course
	space    *plan.Space  // where detours can lie
	wanted   []plan.Range // where the batch's probes stand, in order
	pools    *poolPlan
	common   *sharedPlan
	tally    *tallyPlan
	prepared map[*assess.Function]preparedFunction
	texts    []byte // code of stages
	// manyCounted says that the returns of many functions are counted and nothing else.
	manyCounted bool
	// sketches are of the stages whose size was asked for; generous says that it
	// must do for whatever copies may take.
	sketches map[stageKey]*detour.Sketch
	shapes   map[shape]sized
	generous bool
}

// batch is a change as it was planned. It stays as it is.
type batch struct {
	out     *outgoing        // what makes way
	drop    map[*Placed]bool // the probes that go
	fresh   []*Placed        // those that come
	own     []own            // breakpoints of kprobe's own
	traps   []PatchRequest   // breakpoints
	patches []*Patch         // jumps, with the bytes of their detours
	courses map[*Placed]*course
	memory  []plan.Range // to be mapped for detours
	pools   *poolPlan    // for the return probes; nil: they need none
	common  *sharedPlan  // code that detours share; nil: they need none
	tally   *tallyPlan   // code that counts for them; nil: they do
	text    uint64       // the state of the text that it is of
}

// stageKey tells the stages of a batch apart.
type stageKey struct {
	at   symbols.Addr
	last *Placed
	kind wantKind
	way  detour.Passing
	n    int
}

func keyOf(ws []PatchRequest) stageKey {
	last := ws[len(ws)-1]
	return stageKey{last.Site.Addr, last.P, last.Kind, last.passing, len(ws)}
}

// course is how a probe would be armed by the plan: at first as it is armed now.
func (o *planner) course(p *Placed) *course {
	c := o.courses[p]
	if c == nil {
		now := p.course
		c = &now
		o.courses[p] = c
	}
	return c
}

// occupied reports whether a breakpoint is at an address that doesn't make way.
func (o *planner) occupied(a symbols.Addr) bool {
	_, ok := o.ground.stands.breakpoint(a)
	return ok
}

// plan plans a change: what comes, and what stays of what makes way for it.
func (tg *Target) plan(c *changeset) (*batch, error) {
	ws := c.requests(tg)
	defer tg.readAhead(len(ws))()
	for i := range ws {
		ws[i].P.findFacts()
	}
	return planOn(tg.ground(c.out), c, ws)
}

// planOn plans what is wanted of a change on a ground.
func planOn(g *ground, c *changeset, ws []PatchRequest) (*batch, error) {
	o := &planner{ground: g, own: c.own, courses: map[*Placed]*course{}}
	b := &batch{out: c.out, drop: c.drop, fresh: c.fresh, own: c.own, traps: ws, courses: o.courses, text: g.text}
	if g.breakpoints {
		return b, nil
	}
	for {
		goes := o.goCalls(ws)
		err := o.plan(c.avoid, ws, b)
		if err != nil || !slices.ContainsFunc(goes, func(p *Placed) bool { return o.course(p).ByExits == nil }) {
			return b, err
		}
		// One is for breakpoints, where there were to be jumps.
	}
}

// plan is one try. avoid are addresses that only seem free.
func (o *planner) plan(avoid []plan.Range, ws []PatchRequest, b *batch) error {
	returns, busy, err := o.judge(ws)
	if err != nil {
		return err
	}
	groups, rest, err := o.group(ws, busy)
	b.traps, b.patches, b.memory, b.pools, b.common, b.tally = rest, nil, nil, nil, nil, nil
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		o.addExits(ws, groups, nil)
		return nil
	}
	o.params = *o.ground.params // learn has found them
	o.params.Scratch = &detour.Scratch{}
	maps, space, err := o.ground.free()
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
	if maps, err = o.planTally(maps, groups, avoid); err != nil {
		return err
	}
	if err := o.planPools(maps, returns, avoid); err != nil {
		return err
	}
	rest = o.addExits(ws, groups, rest)
	o.shapes = map[shape]sized{}
	o.wanted, o.sketches, o.prepared = wantedBytes(groups), map[stageKey]*detour.Sketch{}, map[*assess.Function]preparedFunction{}
	defer func() { o.sketches = nil }()
	patches, left, err := o.functions(groups, len(ws) >= letGoFrom)
	if err != nil {
		return err
	}
	rest = append(rest, left...)
	sort.Slice(patches, func(i, j int) bool { return patches[i].Plan.At < patches[j].Plan.At })
	patches, rest = o.dropConflicting(patches, ws, rest)
	if patches, rest, err = o.dropOccupied(patches, rest); err != nil {
		return err
	}
	b.patches, b.traps = o.allOrNone(patches, ws, rest)
	if len(b.patches) > 0 {
		b.memory, b.pools, b.common, b.tally = o.space.Fresh(), o.pools, o.common, o.tally
	}
	return nil
}

// leaveForCopies keeps detours away from addresses that the copies of the probed
// instructions of each module would take: which of them will be breakpoints isn't known
// before all detours have their places, and those are chosen all over what is in reach.
func (o *planner) leaveForCopies(maps []symbols.Mapping, ws []PatchRequest) {
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

// judge finds the return probes whose calls need no breakpoints, and the places
// that must have one.
func (o *planner) judge(ws []PatchRequest) (returns []*Placed, busy map[symbols.Addr]bool, err error) {
	busy = map[symbols.Addr]bool{}
	for _, x := range o.own {
		busy[x.Site.Addr] = true
	}
	o.countsMany(ws)
	for _, w := range ws {
		if err := o.ground.pause("", 0, 0); err != nil {
			return nil, nil, err
		}
		if o.jumps(w) {
			continue
		}
		if w.Kind == requestReturn && o.followReturn(w) == "" {
			returns = append(returns, w.P)
		} else if w.Kind != requestEntry && (w.Kind != requestExit || w.conditional) || w.Kind == requestEntry && w.P.user.handles() {
			busy[w.Site.Addr] = true
		}
	}
	o.findAlone(returns)
	return returns, busy, nil
}

// group divides what may be jumps by functions. The rest is for breakpoints.
func (o *planner) group(ws []PatchRequest, busy map[symbols.Addr]bool) (groups map[*assess.Function][]PatchRequest, rest []PatchRequest, err error) {
	groups = map[*assess.Function][]PatchRequest{}
	functionOf, stop := o.ground.code.decodedAhead(ws)
	defer stop()
	for i, w := range ws {
		if err := o.ground.pause("reading functions", i, len(ws)); err != nil {
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
				why = "the stack pointer may lead to no stack here"
			} else if w.Site.Module.File.IsGo() {
				w.stack, why = o.goStack(f, w)
			}
		}
		if why != "" {
			o.course(w.P).Why = why
			rest = append(rest, w)
		} else {
			groups[f] = append(groups[f], w)
		}
		if f != nil && len(ws) >= letGoFrom {
			f.Release()
		}
	}
	return groups, o.together(groups, rest), nil
}

// whyOther is why a probe is a breakpoint that could be a jump if another were none.
const whyOther = "a breakpoint of another probe is there"

// together makes breakpoints of what would be jumps at places of which rest has
// others: a jump there would hide their breakpoint.
func (o *planner) together(groups map[*assess.Function][]PatchRequest, rest []PatchRequest) []PatchRequest {
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
			o.course(w.P).Why = whyOther
			rest = append(rest, w)
		}
		if groups[f] = kept; len(kept) == 0 {
			delete(groups, f)
		}
	}
	return rest
}

// unoptimizable says why a probe must be a breakpoint whatever the code is; ""
// if it may be a jump.
func (o *planner) unoptimizable(w PatchRequest, busy map[symbols.Addr]bool) string {
	if w.Kind == requestReturn {
		if why := o.followReturn(w); why != "" {
			return why
		}
	}
	if why := w.trapsByKind(); why != "" {
		return why
	}
	if busy[w.Site.Addr] || o.occupied(w.Site.Addr) {
		return whyOther
	}
	return w.trapsByPlace()
}

// trapsByKind says why a request is for a breakpoint by what it is; "" if it may be for
// a jump.
func (w *PatchRequest) trapsByKind() string {
	switch {
	case w.Kind == requestEntry && w.P.user.handles():
		return w.P.user.whyTrap()
	case w.Kind == requestExit && w.conditional:
		return "it leaves the function or not, as the flags say"
	case w.Kind != requestEntry && w.Kind != requestReturn && w.Kind != requestExit:
		return "it is followed by breakpoints"
	}
	return ""
}

// trapsByPlace says why a request is for a breakpoint by what is at its place, or by what
// it records there; "" if it may be for a jump.
func (w *PatchRequest) trapsByPlace() string {
	if w.P.breakpointOnly != "" {
		return w.P.breakpointOnly
	}
	if why := assess.NeverJump(w.Site); why != "" {
		return why
	}
	if need := w.P.prog.NeedsTracer(); need != "" {
		return need + " can be had by the tracer only"
	}
	return ""
}
