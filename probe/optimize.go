package probe

import (
	"errors"
	"slices"
	"sort"
	"sync"

	"kprobe/probe/asm"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/insn"
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
// The planner writes nothing: not the process, and not what the session knows of
// it. It reads the text and what stands there, the target's free addresses and the
// code of its files, and gives a batch, which is built (build.go) and committed
// (commit.go), or forgotten. While it works stops may be answered (answer.go): the
// batch says of which state of the text it is.

// planner plans one change.
type planner struct {
	tg      *target       // what stands there
	leaving *outgoing     // what of it makes way
	params  detour.Params // of the target's detours
	courses map[*placed]*course
	// unwinder names what walks the target's stacks.
	unwinder func() string
	space    *plan.Space  // where detours can lie
	wanted   []plan.Range // where the batch's probes stand, in order
	pools    *poolPlan
	common   *sharedPlan
	prepared map[*assess.Function]preparedFunction
	shared   []*detour.Detour // the latest that are no others' like
	exits    *exits.Finder
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
	drop    map[*placed]bool // the probes that go
	fresh   []*placed        // those that come
	own     []own            // breakpoints of kprobe's own
	traps   []patchRequest   // breakpoints
	patches []*patch         // jumps, with the bytes of their detours
	courses map[*placed]*course
	memory  []plan.Range // to be mapped for detours
	pools   *poolPlan    // for the return probes; nil: they need none
	common  *sharedPlan  // code that detours share; nil: they need none
	text    uint64       // the state of the text that it is of
}

// stageKey tells the stages of a batch apart.
type stageKey struct {
	at   symbols.Addr
	last *placed
	kind wantKind
	way  detour.Passing
	n    int
}

func keyOf(ws []patchRequest) stageKey {
	last := ws[len(ws)-1]
	return stageKey{last.Site.Addr, last.p, last.kind, last.passing, len(ws)}
}

// course is how a probe would be armed by the plan: at first as it is armed now.
func (o *planner) course(p *placed) *course {
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
	st := o.tg.sites[a]
	return st != nil && !o.leaving.hasSite(st)
}

// plan plans a change: what comes, and what stays of what makes way for it.
func (tg *target) plan(c *changeset) (*batch, error) {
	ws := c.requests(tg)
	o := &planner{tg: tg, leaving: c.out, courses: map[*placed]*course{}, exits: tg.exitFinder(), unwinder: sync.OnceValue(func() string { return tg.s.unwinds.In(tg.space) })}
	b := &batch{out: c.out, drop: c.drop, fresh: c.fresh, own: c.own, traps: ws, courses: o.courses, text: tg.text}
	if tg.s.opts.NoOptimize {
		return b, nil
	}
	for {
		goes := o.goCalls(ws)
		err := o.plan(c, ws, b)
		if err != nil || !slices.ContainsFunc(goes, func(p *placed) bool { return o.course(p).byExits == nil }) {
			return b, err
		}
		// One is for breakpoints, where there were to be jumps.
	}
}

// plan is one try.
func (o *planner) plan(c *changeset, ws []patchRequest, b *batch) error {
	tg := o.tg
	returns, busy, err := o.judge(ws, c.own)
	if err != nil {
		return err
	}
	groups, rest, err := o.group(ws, busy)
	b.traps, b.patches, b.memory, b.pools, b.common = rest, nil, nil, nil, nil
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		o.addExits(ws, groups, nil)
		return nil
	}
	o.params = *tg.params // learn has found them
	o.params.Scratch = &detour.Scratch{}
	maps, err := symbols.ReadMaps(tg.proc.PID())
	if err != nil {
		return err
	}
	o.space = tg.codeSpace(maps)
	for _, r := range c.avoid {
		o.space.Exclude(r)
	}
	o.leaveForCopies(maps, ws)
	if maps, err = o.planShared(maps, groups, len(returns) > 0, c.avoid); err != nil {
		return err
	}
	if err := o.planPools(maps, returns, c.avoid); err != nil {
		return err
	}
	rest = o.addExits(ws, groups, rest)
	o.shapes = map[shape]sized{}
	o.wanted, o.sketches, o.prepared = wantedBytes(groups), map[stageKey]*detour.Sketch{}, map[*assess.Function]preparedFunction{}
	defer func() { o.sketches = nil }()
	patches, left, err := o.functions(groups, len(ws) >= letGo)
	if err != nil {
		return err
	}
	rest = append(rest, left...)
	sort.Slice(patches, func(i, j int) bool { return patches[i].plan.At < patches[j].plan.At })
	patches, rest = o.dropConflicting(patches, ws, rest)
	if patches, rest, err = o.dropOccupied(patches, rest); err != nil {
		return err
	}
	b.patches, b.traps = o.allOrNone(patches, ws, rest)
	if len(b.patches) > 0 {
		b.memory, b.pools, b.common = o.space.Fresh(), o.pools, o.common
	}
	return nil
}

// leaveForCopies keeps detours away from addresses that the copies of the probed
// instructions of each module would take: which of them will be breakpoints isn't known
// before all detours have their places, and those are chosen all over what is in reach.
func (o *planner) leaveForCopies(maps []symbols.Mapping, ws []patchRequest) {
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
func (o *planner) judge(ws []patchRequest, list []own) (returns []*placed, busy map[symbols.Addr]bool, err error) {
	busy = map[symbols.Addr]bool{}
	for _, x := range list {
		busy[x.Site.Addr] = true
	}
	o.countsMany(ws)
	for _, w := range ws {
		if err := o.tg.answer(); err != nil {
			return nil, nil, err
		}
		if o.jumps(w) {
			continue
		}
		if w.kind == requestReturn && o.followReturn(w) == "" {
			returns = append(returns, w.p)
		} else if w.kind != requestEntry && (w.kind != requestExit || w.conditional) || w.kind == requestEntry && w.p.user.handles() {
			busy[w.Site.Addr] = true
		}
	}
	o.leaveAlone(returns)
	return returns, busy, nil
}

// group divides what may be jumps by functions. The rest is for breakpoints.
func (o *planner) group(ws []patchRequest, busy map[symbols.Addr]bool) (groups map[*assess.Function][]patchRequest, rest []patchRequest, err error) {
	tg := o.tg
	groups = map[*assess.Function][]patchRequest{}
	functionOf, stop := tg.decodedAhead(ws)
	defer stop()
	for i, w := range ws {
		if err := tg.answer(); err != nil {
			return nil, nil, err
		}
		tg.s.progress("reading functions", i, len(ws))
		if o.jumps(w) {
			continue // addExits adds it
		}
		why := o.unoptimizable(w, busy)
		var f *assess.Function
		if why == "" {
			if f, err = functionOf(w.Site); err != nil {
				why = err.Error()
			} else if f.Sweep.StackStrays(uint64(w.Site.Addr)) {
				why = "the stack pointer may lead to no stack here"
			} else if w.Site.Module.File.IsGo() {
				w.stack, why = tg.goStack(f, w)
			}
		}
		if why != "" {
			o.course(w.p).why = why
			rest = append(rest, w)
		} else {
			groups[f] = append(groups[f], w)
		}
		if f != nil && len(ws) >= letGo {
			f.Release()
		}
	}
	return groups, o.together(groups, rest), nil
}

// together makes breakpoints of what would be jumps at places of which rest has
// others: a jump there would hide their breakpoint.
func (o *planner) together(groups map[*assess.Function][]patchRequest, rest []patchRequest) []patchRequest {
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
			o.course(w.p).why = "a breakpoint of another probe is there"
			rest = append(rest, w)
		}
		if groups[f] = kept; len(kept) == 0 {
			delete(groups, f)
		}
	}
	return rest
}

// take notes what files tell of a function that is planned next.
func (o *planner) take(f *assess.Function, got preparedFunction) {
	if got.f != nil {
		f.Load(got.f)
	}
	o.prepared[f] = got
}

// giveUp makes breakpoints of what the patch was to serve, which is added to
// rest; exits of others go with their entries.
func (o *planner) giveUp(p *patch, rest []patchRequest, why string) []patchRequest {
	for _, w := range p.wants {
		c := o.course(w.p)
		c.tactic, c.why = plan.Breakpoint, why
		if w.kind != wantExit {
			rest = append(rest, w)
		}
	}
	return rest
}

// unoptimizable says why a probe must be a breakpoint whatever the code is; ""
// if it may be a jump.
func (o *planner) unoptimizable(w patchRequest, busy map[symbols.Addr]bool) string {
	if w.kind == requestReturn {
		if why := o.followReturn(w); why != "" {
			return why
		}
	}
	if why := w.trapsByKind(); why != "" {
		return why
	}
	if busy[w.Site.Addr] || o.occupied(w.Site.Addr) {
		return "a breakpoint of another probe is there"
	}
	return w.trapsByPlace()
}

// trapsByKind says why a request is for a breakpoint by what it is; "" if it may be for
// a jump.
func (w *patchRequest) trapsByKind() string {
	switch {
	case w.kind == requestEntry && w.p.user.handles():
		return w.p.user.whyTrap()
	case w.kind == requestExit && w.conditional:
		return "it leaves the function or not, as the flags say"
	case w.kind != requestEntry && w.kind != requestReturn && w.kind != requestExit:
		return "it is followed by breakpoints"
	}
	return ""
}

// trapsByPlace says why a request is for a breakpoint by what is at its place, or by what
// it records there; "" if it may be for a jump.
func (w *patchRequest) trapsByPlace() string {
	if w.p.breakpointOnly != "" {
		return w.p.breakpointOnly
	}
	if why := assess.NeverJump(w.Site); why != "" {
		return why
	}
	if need := w.p.prog.NeedsTracer(); need != "" {
		return need + " can be had by the tracer only"
	}
	return ""
}

// function plans the probes of one function and builds their detours. Where copies
// take more than nearly all do, all is planned once more.
func (o *planner) function(f *assess.Function, ws []patchRequest, planned pageIndex) (patches []*patch, rest []patchRequest) {
	defer func() {
		o.generous = false
		clear(o.sketches)
	}()
	why := make([]string, len(ws))
	for i, w := range ws {
		why[i] = o.course(w.p).why
	}
	patches, rest, short := o.functionOnce(f, ws, planned)
	if !short {
		return patches, rest
	}
	o.release(patches)
	for i, w := range ws {
		o.course(w.p).why = why[i]
	}
	o.generous = true
	patches, rest, _ = o.functionOnce(f, ws, planned)
	return patches, rest
}

// functionOnce plans and builds; short says that a detour did not fit the room that
// was asked for.
func (o *planner) functionOnce(f *assess.Function, ws []patchRequest, planned pageIndex) (patches []*patch, rest []patchRequest, short bool) {
	if len(ws) == 0 {
		return nil, nil, false
	}
	byAddr := map[uint64][]patchRequest{}
	var sites []plan.Site
	for _, w := range ws {
		a := uint64(w.Site.Addr)
		if byAddr[a] == nil {
			sites = append(sites, plan.Site{Addr: a})
		}
		byAddr[a] = append(byAddr[a], w)
	}
	giveUp := func(a uint64, why string) {
		for _, w := range byAddr[a] {
			o.course(w.p).why = why
			rest = append(rest, w)
		}
		delete(byAddr, a)
	}
	for i := range sites {
		room, err := o.room(sites[i].Addr, byAddr[sites[i].Addr])
		if err != nil {
			giveUp(sites[i].Addr, err.Error())
			sites[i].Trap = true
			continue
		}
		sites[i].Room = room
	}
	if err := o.prepared[f].err; err != nil {
		for a := range byAddr {
			giveUp(a, err.Error())
		}
		return nil, rest, false
	}
	taken := o.taken(f, ws[0].Site.Module, planned)
	plans, err := plan.Plan(o.prepared[f].plan, sites, o.space, taken)
	if err == nil && wantsMore(plans, sites) {
		if wide := o.tg.around.Wide(f.Sweep, f.Fn, ws[0].Site.Module); wide != nil {
			release(o.space, plans)
			plans, err = plan.Plan(wide, sites, o.space, taken)
		}
	}
	if err != nil {
		for a := range byAddr {
			giveUp(a, err.Error())
		}
		return nil, rest, false
	}
	for _, p := range plans {
		built, err := o.build(p, byAddr)
		if errors.Is(err, errRoom) {
			short = true
			release(o.space, []*plan.Patch{p})
		}
		if err == nil {
			built.trim(o.space)
		}
		why := p.Why
		if err != nil {
			why = err.Error()
		}
		for _, a := range p.Sites {
			if err != nil || !p.Tactic.Jump() {
				giveUp(a, why)
			}
		}
		if err == nil && p.Tactic.Jump() {
			patches = append(patches, built)
			for _, a := range p.Sites {
				for _, w := range byAddr[a] {
					if w.kind != wantExit || w.alone {
						c := o.course(w.p)
						c.tactic, c.why = p.Tactic, p.Why
					}
					built.wants = append(built.wants, w)
				}
				delete(byAddr, a)
			}
		}
	}
	for a := range byAddr {
		giveUp(a, "no tactic was found for it")
	}
	return patches, rest, short
}

// wantsMore reports whether one of the plans is a breakpoint that nobody asked for.
func wantsMore(plans []*plan.Patch, sites []plan.Site) bool {
	return slices.ContainsFunc(plans, func(p *plan.Patch) bool {
		return p.Tactic == plan.Breakpoint && slices.ContainsFunc(sites, func(s plan.Site) bool {
			return s.Addr == p.Sites[0] && !s.Trap
		})
	})
}

// release gives the room of patches back that are not carried out.
func (o *planner) release(patches []*patch) {
	for _, p := range patches {
		for q := p; q != nil; q = q.island {
			o.space.Release(q.plan.Detour, q.plan.Room)
		}
	}
}

// release gives the room of plans back that are not carried out.
func release(space *plan.Space, plans []*plan.Patch) {
	for _, p := range plans {
		for q := p; q != nil && q.Tactic.Jump(); q = q.Island {
			space.Release(q.Detour, q.Room)
		}
	}
}

// What copies may take, a window's instructions and the way back: nearly always,
// and whatever they are.
const (
	copyRoom    = 48
	maxCopyRoom = 160
)

// stageRoom is what a stage may take besides its code: the jump to the next
// one, and alignment.
const stageRoom = 24

// sketchTail is what copies take where a stage is built to know its size.
const sketchTail = 32

// room is how many bytes the detour of the probes at an address takes at most.
func (o *planner) room(at uint64, ws []patchRequest) (int, error) {
	size := copyRoom
	if o.generous {
		size = maxCopyRoom
	}
	tail := func(c *asm.Code) error { c.Nop(sketchTail); return nil }
	base := (at + 1<<20) &^ 15
	for _, part := range o.apart(ws) {
		like, simple := o.shapeOf(part)
		if known, ok := o.shapes[like]; simple && ok {
			size += known.room
			o.sketches[keyOf(part)] = known.sketch
			continue
		}
		st := &stage{base: symbols.Addr(base), sketch: &detour.Sketch{}}
		text, err := o.probes(st, part, tail)
		if err != nil {
			return 0, err
		}
		if len(part) > 0 && o.sketches != nil {
			o.sketches[keyOf(part)] = st.sketch
		}
		n := (len(text)-sketchTail-st.sketch.Shorter()+15)&^15 + stageRoom
		size += n
		if simple {
			o.shapes[like] = sized{n, st.sketch}
		}
	}
	return size, nil
}

// shape is what the code of a stage whose probes only count depends on, besides
// addresses and numbers.
type shape struct {
	kind    wantKind
	passing detour.Passing
	always  bool
	cond    byte
	pop     uint16
	joins   bool
	table   uint64
}

// sized is how much room a stage takes, and how it is built so that it does.
type sized struct {
	room   int
	sketch *detour.Sketch
}

// shapeOf is the shape of a stage; ok is false for one that is none of those that
// thousands are like.
func (o *planner) shapeOf(part []patchRequest) (s shape, ok bool) {
	if len(part) == 0 || o.sketches == nil {
		return s, false
	}
	w := part[len(part)-1]
	by := o.course(w.p).byExits
	common, anywhere := by != nil && by.calls.Common, true
	for _, x := range part {
		if !x.p.counts() || x.p.birth != nil || x.p.goABI || x.Site.Module.File.IsGo() || len(x.p.prog.Entry) > 0 {
			return s, false
		}
		by := o.course(x.p).byExits
		anywhere = anywhere && by != nil && by.anywhere
	}
	switch s.kind = w.kind; {
	case w.kind == requestEntry && len(part) == 1:
		return s, true
	case by != nil && by.alone:
		return s, len(part) == 1
	case !common || w.open != nil:
	case w.kind == requestReturn && len(part) == 1:
		s.table, s.joins = by.calls.Addr, w.joins
		return s, true
	case w.kind == wantExit && w.passing != detour.NotPassing:
		s.table, s.passing, s.always = by.calls.Addr, w.passing, !w.conditional
		if w.conditional {
			s.cond = w.Inst.Opcode & 15
		}
		return s, true
	case w.kind == wantExit && anywhere:
		s.table, s.pop = by.calls.Addr, w.pop
		return s, true
	}
	return s, false
}

func (o *planner) probesOf(ws []patchRequest) []detour.Probe {
	out := make([]detour.Probe, 0, len(ws))
	for _, w := range ws {
		by := o.course(w.p).byExits
		out = append(out, detour.Probe{
			ID: w.p.id, Program: w.p.prog, CountOnly: !w.p.target.s.records(w.p.user), Bins: w.p.detourBins(), IP: uint64(w.p.where.Addr),
			Anywhere: by != nil && by.anywhere, Inject: w.p.injection(), Control: w.p.detourControl(), Birth: w.p.birth,
		})
	}
	return out
}

// trim gives the room back that the patch's detours were found and didn't need.
func (p *patch) trim(s *plan.Space) {
	for ; p != nil && len(p.stages) > 0; p = p.island {
		last := p.stages[len(p.stages)-1]
		end := (uint64(last.base) + uint64(last.size) + 15) &^ 15
		if room := int(end - p.plan.Detour); room < p.plan.Room {
			s.Release(end, p.plan.Room-room)
			p.plan.Room = room
		}
	}
}

var errRoom = errors.New("its detour does not fit the room that was found for it")

// build makes the detours of a plan, to lie where the plan says.
func (o *planner) build(p *plan.Patch, byAddr map[uint64][]patchRequest) (*patch, error) {
	out := &patch{plan: p}
	if !p.Tactic.Jump() {
		return out, nil
	}
	if p.Island != nil {
		island, err := o.build(p.Island, nil)
		if err != nil {
			return nil, err
		}
		out.island = island
	}
	// Where the stages start: at each site, and at the first byte if there
	// is none.
	type start struct {
		at    uint64
		sites []patchRequest
	}
	starts := []start{{at: p.At}}
	for _, a := range p.Sites {
		pos := max(a, p.At)
		if last := &starts[len(starts)-1]; last.at == pos {
			last.sites = append(last.sites, byAddr[a]...)
		} else {
			starts = append(starts, start{pos, byAddr[a]})
		}
	}
	for i := len(starts) - 1; i >= 0; i-- {
		var parts []start
		for _, ws := range o.apart(starts[i].sites) {
			parts = append(parts, start{starts[i].at, ws})
		}
		starts = slices.Replace(starts, i, i+1, parts...)
	}
	base := p.Detour
	end := p.Detour + uint64(p.Room)
	for i, s := range starts {
		from := s.at - p.At
		code := p.Displaced[from:]
		opts := insn.Options{}
		if i+1 < len(starts) {
			code = p.Displaced[from : starts[i+1].at-p.At]
			opts.NoJumpBack = true
		}
		st := &stage{base: symbols.Addr(base), at: symbols.Addr(s.at)}
		var next uint64
		if i+1 < len(starts) {
			// The size doesn't depend on where the next stage lies.
			trial, err := o.stage(st, s.sites, code, opts, base+memory.PageSize)
			if err != nil {
				return nil, err
			}
			next = (base + uint64(len(trial)) + 15) &^ 15
		}
		text, err := o.stage(st, s.sites, code, opts, next)
		if err != nil {
			return nil, err
		}
		o.share(st.detour)
		st.size = len(text)
		if base+uint64(len(text)) > end {
			return nil, errRoom
		}
		st.text = text
		out.stages = append(out.stages, st)
		base = (base + uint64(len(text)) + 15) &^ 15
	}
	return out, nil
}

// alike is how many detours others are compared with.
const alike = 8

// share has a detour use what an earlier one has.
func (o *planner) share(d *detour.Detour) {
	if d == nil || slices.ContainsFunc(o.shared, d.Share) {
		return
	}
	if o.shared = append(o.shared, d); len(o.shared) > alike {
		o.shared = o.shared[1:]
	}
}

// stage builds one stage at its base. next, if not 0, is the base of the
// following stage: this one's copies end in a jump there.
func (o *planner) stage(st *stage, ws []patchRequest, code []byte, opts insn.Options, next uint64) ([]byte, error) {
	tail := func(c *asm.Code) error {
		st.copyAt = symbols.Addr(c.Here())
		if len(code) == 0 {
			c.JmpAddr(next)
			return nil
		}
		m, err := insn.RelocateWindow(code, uint64(st.at), c.Here(), opts)
		if err != nil {
			return err
		}
		st.moved = m
		c.Raw(m.Code...)
		if next != 0 {
			st.onward = st.at + symbols.Addr(len(code))
			c.JmpAddr(next)
		}
		return nil
	}
	if len(ws) == 0 {
		c := asm.New(uint64(st.base))
		if err := tail(c); err != nil {
			return nil, err
		}
		return c.Bytes()
	}
	st.sketch = o.sketches[keyOf(ws)]
	return o.probes(st, ws, tail)
}

// tailFunc emits what a stage ends in.
type tailFunc = func(c *asm.Code) error

// probes builds the stage of probes that are not apart.
func (o *planner) probes(st *stage, ws []patchRequest, tail tailFunc) ([]byte, error) {
	switch last := ws[len(ws)-1]; {
	case last.kind == wantExit:
		return o.leaveStage(st, ws, tail)
	case last.kind == requestReturn && o.course(last.p).byExits != nil:
		return o.enterStage(st, ws, tail)
	case last.kind == requestReturn:
		return o.returnStage(st, last, tail)
	}
	params := o.goParams(ws[0])
	params.Sketch = st.sketch
	var d *detour.Detour
	var err error
	if ws[0].kind == requestExit {
		d, err = detour.BuildExit(uint64(st.base), &params, o.probesOf(ws), nil, tail)
	} else {
		d, err = detour.Build(uint64(st.base), &params, o.probesOf(ws), tail)
	}
	if err != nil {
		return nil, err
	}
	st.detour, st.wants = d, ws
	return d.Code, nil
}

// noted reports whether the calls of a function are noted in a table in common where its
// entry's probes are: then nothing else is to be done for those that arrive there.
func (o *planner) noted(ws []patchRequest, table uint64) bool {
	return slices.ContainsFunc(ws, func(w patchRequest) bool {
		by := o.course(w.p).byExits
		return w.kind == requestReturn && by != nil && by.calls.Common && by.calls.Addr == table
	})
}

// sameTable reports whether the calls of two return probes are in one table.
func (o *planner) sameTable(a, b patchRequest) bool {
	x, y := o.course(a.p).byExits, o.course(b.p).byExits
	return x != nil && y != nil && x.calls.Common && x.calls.Addr == y.calls.Addr
}

// apart divides the probes of one address into those that share a stage: the
// entry probes, with the first return probe if that is one of exits; those that an
// exit is a hit of by itself, each return probe, those exits of others that have a
// table in common, and each other exit. There is at least one part.
func (o *planner) apart(ws []patchRequest) [][]patchRequest {
	var entries, leaves []patchRequest
	var out [][]patchRequest
	type way struct {
		table   uint64
		passing detour.Passing
	}
	tables := map[way]int{}
	for _, w := range ws {
		switch {
		case w.kind == requestEntry:
			entries = append(entries, w)
		case w.kind == requestExit || w.kind == wantExit && w.alone:
			leaves = append(leaves, w)
		case w.kind == wantExit && o.course(w.p).byExits.calls.Common:
			at := way{o.course(w.p).byExits.calls.Addr, w.passing}
			if w.passing == detour.Arrives && o.noted(ws, at.table) {
				continue
			}
			n, ok := tables[at]
			if !ok {
				n, tables[at], out = len(out), len(out), append(out, nil)
			}
			out[n] = append(out[n], w)
			if w.Site.Module == w.p.where.Module && w.Site.Func.Start == w.p.where.Func.Start {
				out[n][0], out[n][len(out[n])-1] = w, out[n][0] // who returns here most
			}
		case w.kind == requestReturn:
			w.joins = slices.ContainsFunc(out, func(before []patchRequest) bool {
				return before[0].kind == requestReturn && o.sameTable(before[0], w)
			})
			out = append(out, []patchRequest{w})
		default:
			out = append(out, []patchRequest{w})
		}
	}
	if len(leaves) > 0 {
		out = append([][]patchRequest{leaves}, out...)
	}
	switch {
	case len(entries) > 0 && len(out) > 0 && out[0][0].kind == requestReturn && o.course(out[0][0].p).byExits != nil:
		out[0] = append(entries, out[0]...)
	case len(entries) > 0 || len(out) == 0:
		out = append([][]patchRequest{entries}, out...)
	}
	return out
}
