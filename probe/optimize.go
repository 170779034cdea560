package probe

import (
	"context"
	"errors"
	"slices"
	"sort"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// How probes are optimized
//
// A batch's entry probes are planned function by function: for each a tactic
// (probe/plan), and where one leads by a jump, its detours are built
// (probe/detour). All that needs no stop. Then, in one stop of the target:
//
//  1. threads that stand under a jump-to-be are moved to the copy of the
//     instruction they are at;
//  2. the journal gets each change, then the text.
//
// The threads run on through a return from the kernel, which serializes the
// processor: no stale instruction is executed. What can't be optimized stays a
// breakpoint, and its placed.why says the reason.

// optimizer is what a target needs to plan and build patches.
type optimizer struct {
	tg     *target
	params detour.Params
	around survey.Around
	wanted []plan.Range // where the batch's probes stand, in order
	// sketches are of the stages whose size was asked for; generous says that it
	// must do for whatever copies may take.
	sketches map[stageKey]*detour.Sketch
	generous bool
}

// stageKey tells the stages of a batch apart.
type stageKey struct {
	at   symbols.Addr
	last *placed
	kind wantKind
	n    int
}

func keyOf(ws []want) stageKey {
	last := ws[len(ws)-1]
	return stageKey{last.at.Addr, last.p, last.kind, len(ws)}
}

// optimize takes the wants that can be optimized out of a batch and gives
// their patches, built and written, not armed. What is left is for breakpoints.
func (tg *target) optimize(ctx context.Context, ws []want) (rest []want, patches []*patch, err error) {
	if tg.s.opts.NoOptimize || tg.borrowed {
		return ws, nil, nil
	}
	for {
		goes := tg.goCalls(ws)
		rest, patches, err = tg.optimizeOnce(ctx, ws)
		if err != nil || !slices.ContainsFunc(goes, func(p *placed) bool { return p.byExits == nil }) {
			return rest, patches, err
		}
		// One is for breakpoints, where there were to be jumps.
	}
}

func (tg *target) optimizeOnce(ctx context.Context, ws []want) (rest []want, patches []*patch, err error) {
	busy := map[symbols.Addr]bool{}
	var returns []*placed
	for _, w := range ws {
		if w.jumps() {
			continue
		}
		if w.kind == wantReturn && tg.followReturn(w) == "" {
			returns = append(returns, w.p)
		} else if w.kind != wantEntry && (w.kind != wantLeave || w.conditional) || w.kind == wantEntry && w.p.user.handles() {
			busy[w.at.Addr] = true
		}
	}
	groups := map[*function][]want{}
	for _, w := range ws {
		if w.jumps() {
			continue // addExits adds it
		}
		why := tg.unoptimizable(w, busy)
		var f *function
		if why == "" {
			if f, err = tg.function(w.at); err != nil {
				why = err.Error()
			} else if w.at.Module.File.IsGo() {
				w.stack, why = tg.goStack(f, w)
			}
		}
		if why != "" {
			if w.p != nil {
				w.p.why = why
			}
			rest = append(rest, w)
			continue
		}
		groups[f] = append(groups[f], w)
	}
	if len(groups) == 0 {
		return rest, nil, nil
	}
	o, err := tg.optimizer()
	if err != nil {
		return nil, nil, err
	}
	if err := tg.setClock(groups); err != nil {
		return nil, nil, err
	}
	if err := tg.setShared(ctx, groups); err != nil {
		return nil, nil, err
	}
	if err := tg.layPools(ctx, returns); err != nil {
		return nil, nil, err
	}
	maps, err := symbols.ReadMaps(tg.proc.PID())
	if err != nil {
		return nil, nil, err
	}
	space := tg.codeSpace(maps)
	tg.addExits(ws, groups)
	o.wanted, o.sketches = wantedBytes(groups), map[stageKey]*detour.Sketch{}
	defer func() { o.sketches = nil }()
	planned := pageIndex{}
	for _, u := range units(groups) {
		ps, left := o.unit(u, groups, space, planned)
		patches = append(patches, ps...)
		rest = append(rest, left...)
		for _, p := range ps {
			planned.add(p)
		}
	}
	sort.Slice(patches, func(i, j int) bool { return patches[i].plan.At < patches[j].plan.At })
	patches, rest = settle(patches, ws, rest)
	patches, rest = tg.unpatched(patches, rest)
	if patches, err = o.lay(ctx, space, patches, &rest); err != nil {
		return nil, nil, err
	}
	patches, rest = whole(patches, ws, rest)
	return rest, patches, tg.fillPools(returns)
}

// unoptimizable says why a probe must be a breakpoint whatever the code is; ""
// if it may be a jump.
func (tg *target) unoptimizable(w want, busy map[symbols.Addr]bool) string {
	switch {
	case w.kind == wantReturn && tg.followReturn(w) != "":
		return tg.followReturn(w)
	case w.kind == wantEntry && w.p.user.handles():
		return w.p.user.whyTrap()
	case w.kind == wantLeave && w.conditional:
		return "it leaves the function or not, as the flags say"
	case w.kind != wantEntry && w.kind != wantReturn && w.kind != wantLeave:
		return "it is followed by breakpoints"
	case busy[w.at.Addr] || tg.occupied(w.at.Addr):
		return "a breakpoint of another probe is there"
	case w.p.pinned != "":
		return w.p.pinned
	}
	if why := neverJump(w.at); why != "" {
		return why
	}
	if need := w.p.prog.NeedsTracer(); need != "" {
		return need + " can be had by the tracer only"
	}
	return ""
}

// function plans the probes of one function and builds their detours. Where copies
// take more than nearly all do, all is planned once more.
func (o *optimizer) function(f *function, ws []want, space *plan.Space, planned ...pageIndex) (patches []*patch, rest []want) {
	defer func() { o.generous = false }()
	why := make([]string, len(ws))
	for i, w := range ws {
		why[i] = w.p.why
	}
	patches, rest, short := o.functionOnce(f, ws, space, planned...)
	if !short {
		return patches, rest
	}
	for _, p := range patches {
		for q := p; q != nil; q = q.hole {
			space.Release(q.plan.Detour, q.plan.Room)
		}
	}
	for i, w := range ws {
		w.p.why = why[i]
	}
	o.generous = true
	patches, rest, _ = o.functionOnce(f, ws, space, planned...)
	return patches, rest
}

// functionOnce plans and builds; short says that a detour did not fit the room that
// was asked for.
func (o *optimizer) functionOnce(f *function, ws []want, space *plan.Space, planned ...pageIndex) (patches []*patch, rest []want, short bool) {
	byAddr := map[uint64][]want{}
	var sites []plan.Site
	for _, w := range ws {
		a := uint64(w.at.Addr)
		if byAddr[a] == nil {
			sites = append(sites, plan.Site{Addr: a})
		}
		byAddr[a] = append(byAddr[a], w)
	}
	giveUp := func(a uint64, why string) {
		for _, w := range byAddr[a] {
			w.p.why = why
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
	code, known := o.around.Of(f.code, f.fn, ws[0].at.Module)
	taken := o.taken(f, planned...)
	plans, err := plan.Plan(plan.FromSweep(f.sweep, code, known), sites, space, taken)
	if err == nil && wantsMore(plans, sites) {
		if wide := o.around.Wide(f.sweep, f.fn, ws[0].at.Module); wide != nil {
			release(space, plans)
			plans, err = plan.Plan(wide, sites, space, taken)
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
			release(space, []*plan.Patch{p})
		}
		if err == nil {
			built.trim(space)
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
					if w.kind != wantExit {
						w.p.tactic, w.p.why = p.Tactic, p.Why
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

// release gives the room of plans back that are not carried out.
func release(space *plan.Space, plans []*plan.Patch) {
	for _, p := range plans {
		for q := p; q != nil && q.Tactic.Jump(); q = q.Hole {
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
func (o *optimizer) room(at uint64, ws []want) (int, error) {
	size := copyRoom
	if o.generous {
		size = maxCopyRoom
	}
	tail := func(c *asm.Code) error { c.Nop(sketchTail); return nil }
	base := (at + 1<<20) &^ 15
	for _, part := range apart(ws) {
		st := &stage{base: symbols.Addr(base), sketch: &detour.Sketch{}}
		text, err := o.probes(st, part, tail)
		if err != nil {
			return 0, err
		}
		if len(part) > 0 && o.sketches != nil {
			o.sketches[keyOf(part)] = st.sketch
		}
		size += (len(text)-sketchTail-st.sketch.Shorter()+15)&^15 + stageRoom
	}
	return size, nil
}

func probesOf(ws []want) []detour.Probe {
	var out []detour.Probe
	for _, w := range ws {
		out = append(out, detour.Probe{ID: w.p.id, Program: w.p.prog, CountOnly: !w.p.target.s.records(w.p.user), IP: uint64(w.p.where.Addr)})
	}
	return out
}

// trim gives the room back that the patch's detours were found and didn't need.
func (p *patch) trim(s *plan.Space) {
	for ; p != nil && len(p.stages) > 0; p = p.hole {
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
func (o *optimizer) build(p *plan.Patch, byAddr map[uint64][]want) (*patch, error) {
	out := &patch{plan: p}
	if !p.Tactic.Jump() {
		return out, nil
	}
	if p.Hole != nil {
		hole, err := o.build(p.Hole, nil)
		if err != nil {
			return nil, err
		}
		out.hole = hole
	}
	// Where the stages start: at each site, and at the first byte if there
	// is none.
	type start struct {
		at    uint64
		sites []want
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
		for _, ws := range apart(starts[i].sites) {
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
			trial, err := o.stage(st, s.sites, code, opts, base+pageSize)
			if err != nil {
				return nil, err
			}
			next = (base + uint64(len(trial)) + 15) &^ 15
		}
		text, err := o.stage(st, s.sites, code, opts, next)
		if err != nil {
			return nil, err
		}
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

// stage builds one stage at its base. next, if not 0, is the base of the
// following stage: this one's copies end in a jump there.
func (o *optimizer) stage(st *stage, ws []want, code []byte, opts insn.Options, next uint64) ([]byte, error) {
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
func (o *optimizer) probes(st *stage, ws []want, tail tailFunc) ([]byte, error) {
	switch last := ws[len(ws)-1]; {
	case last.kind == wantExit:
		return o.leaveStage(st, last, tail)
	case last.kind == wantReturn && last.p.byExits != nil:
		return o.enterStage(st, ws, tail)
	case last.kind == wantReturn:
		return o.returnStage(st, last, tail)
	}
	params := o.goParams(ws[0])
	params.Sketch = st.sketch
	var d *detour.Detour
	var err error
	if ws[0].kind == wantLeave {
		d, err = detour.BuildExit(uint64(st.base), &params, probesOf(ws), nil, tail)
	} else {
		d, err = detour.Build(uint64(st.base), &params, probesOf(ws), tail)
	}
	if err != nil {
		return nil, err
	}
	st.detour, st.wants = d, ws
	return d.Code, nil
}

// apart divides the probes of one address into those that share a stage: the
// entry probes, with the first return probe if that is one of exits; those that an
// exit is a hit of by itself, each return probe and each exit of others. There is
// at least one part.
func apart(ws []want) [][]want {
	var entries, leaves []want
	var out [][]want
	for _, w := range ws {
		switch w.kind {
		case wantEntry:
			entries = append(entries, w)
		case wantLeave:
			leaves = append(leaves, w)
		default:
			out = append(out, []want{w})
		}
	}
	if len(leaves) > 0 {
		out = append([][]want{leaves}, out...)
	}
	switch {
	case len(entries) > 0 && len(out) > 0 && out[0][0].kind == wantReturn && out[0][0].p.byExits != nil:
		out[0] = append(entries, out[0]...)
	case len(entries) > 0 || len(out) == 0:
		out = append([][]want{entries}, out...)
	}
	return out
}
