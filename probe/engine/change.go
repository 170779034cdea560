package engine

import (
	"context"
	"errors"
	"slices"

	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
)

// How the set of probes of a running target changes
//
// Places that are added or removed may share a function, an address, or the bytes of a jump with
// places of probes that stay. Everything that a change touches is planned together: the probes
// that are added, and the probes that stay but whose jumps or breakpoints are in the way of a
// better plan. Names, proofs, plans, copies and detours are made while the target runs. Then, in
// one stop:
//
//   1. The outgoing jumps and breakpoints give way: the text gets its original bytes back.
//   2. Threads under the new jumps are moved, and the new jumps and breakpoints are written.
//
// A probe that stays misses no hit and counts none twice: a thread is in the old patch's code or
// in the new one's, and both count under the same probe number. Threads in the old code run on
// through it (retire.go). If no patch has to give way, breakpoints are written without a stop.

// changeset describes a change.
type changeset struct {
	add  []planner.Request // to be armed
	own  []own             // breakpoints of kprobe's own, to be armed
	drop map[*Placed]bool  // probes to be removed
	// change fills in the rest.
	fresh []*Placed    // the probes of add that are new
	out   *outgoing    // the patches that give way
	avoid []plan.Range // ranges in which mapping failed although they seemed free
	built bool         // code that counts hits of fresh may have been written
}

// returns is how many of the requests of add are returns.
func (c *changeset) returns() (n int) {
	for i := range c.add {
		if c.add[i].Kind == planner.Return {
			n++
		}
	}
	return n
}

// outgoing is the set of patches that a change takes out of the text.
type outgoing struct {
	patches []*Patch         // jumps
	sites   []*Site          // breakpoints
	stay    map[*Placed]bool // their probes that stay, and are armed anew
	isPatch map[*Patch]bool
	isSite  map[*Site]bool
}

func newOutgoing() *outgoing {
	return &outgoing{stay: map[*Placed]bool{}, isPatch: map[*Patch]bool{}, isSite: map[*Site]bool{}}
}

func (o *outgoing) addPatch(p *Patch) { o.patches, o.isPatch[p] = append(o.patches, p), true }
func (o *outgoing) addSite(st *Site)  { o.sites, o.isSite[st] = append(o.sites, st), true }

// hasSite reports whether a site's breakpoint gives way.
func (o *outgoing) hasSite(st *Site) bool { return o.isSite[st] }

// hasPatch reports whether a jump gives way.
func (o *outgoing) hasPatch(p *Patch) bool { return o.isPatch[p] }

// nearby is the distance in bytes within which a removed probe may have kept another probe from
// being a jump: a jump covers at most two instructions of maximum length.
const nearby = 2 * insn.MaxLen

// change carries out a change in the main target of the address space. On an error the target is
// as it was before.
func (tg *Target) change(ctx context.Context, c *changeset) error {
	tg = tg.main
	if len(c.add)+len(c.own)+len(c.drop) == 0 {
		return nil
	}
	if err := errors.Join(ctx.Err(), tg.goneError()); err != nil {
		return err
	}
	if err := tg.settle(ctx); err != nil {
		return err
	}
	defer litter(len(c.add), c.returns())()
	err := tg.Engine.inHaste(ctx, func() error { return tg.changeText(context.WithoutCancel(ctx), c) })
	if err == nil {
		tg.syncSemaphores(context.WithoutCancel(ctx))
	}
	return err
}

// changeText is change with a context that doesn't end: a change that has begun to write is
// finished or undone, and both need injected calls. Only planning may be interrupted, by an
// error of answer.
func (tg *Target) changeText(ctx context.Context, c *changeset) (err error) {
	if err := tg.ensureArea(ctx, max(len(c.add), tg.mayCome())); err != nil {
		return err
	}
	tg.discardStuck()
	tg.dropLandings(c)
	if c.fresh, c.built, err = tg.enroll(c.add); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tg.dismiss(c.fresh, c.built)
		}
	}()
	if err := tg.forgetGone(ctx, c); err != nil {
		return err
	}
	if err := tg.makeWay(ctx, c.own); err != nil {
		return err
	}
	tg.unwatch(ctx, c)
	if watches := func(w planner.Request) bool { return w.Kind == planner.Watch }; slices.ContainsFunc(c.add, watches) {
		c.add = slices.DeleteFunc(slices.Clone(c.add), watches)
		c.built = true // a debug register needs no code
	}
	giveBack, err := tg.changeWatches(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			giveBack()
		}
	}()
	for try := 0; ; try++ {
		c.out = tg.affected(c)
		err := tg.exchange(ctx, c)
		var taken *takenError
		switch {
		case errors.As(err, &taken):
			c.avoid = append(c.avoid, taken.Range)
		case !errors.Is(err, errText):
			return err
		}
		if try+1 == disturbed {
			tg.Engine.Answers.off++
			defer func() { tg.Engine.Answers.off-- }()
		}
	}
}

// errText says that the text has changed since the plan was made. The plan is made again.
var errText = errors.New("the text has changed")

// disturbed is how many attempts at a plan answer stops of the target meanwhile. Answering a stop
// may change the text, so later attempts leave stops unanswered until the plan is committed.
const disturbed = 3

// exchange plans, builds and commits a change. On an error the target is as it was before.
func (tg *Target) exchange(ctx context.Context, c *changeset) error {
	ws := c.requests(tg)
	if err := tg.learn(ws); err != nil {
		return err
	}
	held := tg.hold()
	defer held.release(ctx)
	planned, err := tg.plan(c, ws, func(r plan.Range) (bool, error) { return held.take(ctx, r) })
	if err != nil {
		return err
	}
	tg.building, c.built = true, true
	defer func() { tg.building = false }()
	built, err := tg.build(ctx, planned)
	if err != nil {
		return err
	}
	if len(ws) >= planner.LetGoFrom {
		tg.funcs = planner.Functions{} // what was found out about them takes memory, and is seldom asked for again
	}
	return tg.commit(ctx, built)
}

// plan plans the requests ws of a change: those that are new, and those of outgoing patches that
// are armed anew. hold is planner.Ground's.
func (tg *Target) plan(c *changeset, ws []planner.Request, hold func(plan.Range) (bool, error)) (*batch, error) {
	defer tg.readAhead(len(ws))()
	for _, w := range ws {
		PlacedOf(w).findFacts()
	}
	want := planner.Wanted{Requests: ws, Avoid: c.avoid}
	for _, x := range c.own {
		want.Own = append(want.Own, x.Site.Addr)
	}
	ground := tg.ground(c.out)
	ground.Hold = hold
	p, err := ground.Plan(want)
	if err != nil {
		return nil, err
	}
	return &batch{Plan: p, patches: newPatchesOf(p.Patches), out: c.out, drop: c.drop, fresh: c.fresh, own: c.own}, nil
}

// enroll assigns numbers to the probes of a batch that have none, and returns these probes. used says
// that code with some of the numbers was written for an earlier change, which failed.
func (tg *Target) enroll(ws []planner.Request) (fresh []*Placed, used bool, err error) {
	is := map[*Placed]bool{}
	comes := func(w planner.Request) bool { return PlacedOf(w).feed == nil || PlacedOf(w).removed }
	for _, w := range ws {
		if comes(w) {
			is[PlacedOf(w)] = true
		}
	}
	if err := tg.Feed.hasRoom(len(is)); err != nil {
		return nil, false, err
	}
	for _, w := range ws {
		tg.Engine.flagsRead = tg.Engine.flagsRead || readsFlags(w)
		if is[PlacedOf(w)] && w.Kind != planner.Watch {
			PlacedOf(w).want(w)
		}
	}
	for _, p := range tg.Retired.takeBack(is) {
		p.feed.leave(p, false)
		fresh, used = append(fresh, p), true
	}
	for _, w := range ws {
		if !comes(w) {
			continue
		}
		if err := tg.Feed.add(PlacedOf(w)); err != nil {
			tg.dismiss(fresh, used)
			for p := range is {
				p.forgetWants()
			}
			return nil, used, err
		}
		fresh = append(fresh, PlacedOf(w))
	}
	return fresh, used, nil
}

// dismiss frees the numbers of probes whose arming failed. A probe whose jump could not be taken
// out again keeps its number, and is switched off. So does one whose jump was in the text for a
// moment, until it is reaped. built says that code with the numbers may have been written.
func (tg *Target) dismiss(fresh []*Placed, built bool) {
	var inText map[*Placed]bool
	for _, q := range tg.Patches.List {
		if !q.Armed || len(fresh) == 0 {
			continue
		}
		if inText == nil {
			inText = make(map[*Placed]bool, len(fresh))
			for _, p := range fresh {
				inText[p] = false
			}
		}
		for _, w := range q.Wants {
			if _, is := inText[PlacedOf(w)]; is {
				inText[PlacedOf(w)] = true
			}
		}
	}
	used := map[*planner.Probe]bool{}
	if len(fresh) > 0 {
		for _, r := range tg.Retired.list {
			r.served(used)
		}
	}
	r := &retired{}
	for _, p := range slices.Backward(fresh) {
		switch {
		case inText[p]:
			p.feed.leave(p, true)
		case used[&p.Probe]:
			p.feed.leave(p, true)
			r.probes = append(r.probes, p)
		default:
			tg.Feed.free(p, built)
		}
		p.forgetWants() // it may be tried again
	}
	tg.Retired.add(r)
}
