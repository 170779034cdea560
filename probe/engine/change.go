package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// How the set of probes of a running target changes
//
// Places that come and go may share a function, an address, or the bytes of a jump with places
// that stay. Everything that a change touches is planned together: the probes that come, and
// those that stay and whose jumps or breakpoints are in the way of a better plan. All of that
// happens while the target runs: names, proofs, plans, copies, detours. Then, in one stop:
//
//   1. The jumps and breakpoints that make way get their bytes back.
//   2. Threads under the new jumps are moved, and the new jumps and breakpoints are written.
//
// So a probe that stays misses no hit and takes none twice: a thread is in the old one's code
// or in the new one's, and both count under the same number. Threads in the old code run on
// through it (retire.go). If nothing has to make way, breakpoints are written without a stop.

// changeset is what is to be changed.
type changeset struct {
	add  []planner.Request
	own  []own
	drop map[*Placed]bool
	// The rest is found out by change.
	fresh []*Placed    // the probes of add that come
	out   *outgoing    // what makes way
	avoid []plan.Range // where memory could not be mapped, though it seemed free
}

// outgoing is what makes way in a change.
type outgoing struct {
	patches []*Patch
	sites   []*Site
	stay    map[*Placed]bool // probes that were in them and are armed anew
	isPatch map[*Patch]bool
	isSite  map[*Site]bool
}

func newOutgoing() *outgoing {
	return &outgoing{stay: map[*Placed]bool{}, isPatch: map[*Patch]bool{}, isSite: map[*Site]bool{}}
}

func (o *outgoing) addPatch(p *Patch) { o.patches, o.isPatch[p] = append(o.patches, p), true }
func (o *outgoing) addSite(st *Site)  { o.sites, o.isSite[st] = append(o.sites, st), true }

// hasSite reports whether a site makes way.
func (o *outgoing) hasSite(st *Site) bool { return o.isSite[st] }

// hasPatch reports whether a jump makes way.
func (o *outgoing) hasPatch(p *Patch) bool { return o.isPatch[p] }

// nearby is how far from a probe that goes another may stand that could not be
// a jump because of it: a jump covers at most two long instructions.
const nearby = 2 * maxInsn

// change carries a change out. On an error the target is as it was before.
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
	defer litter(len(c.add))()
	err := tg.Engine.inHaste(ctx, func() error { return tg.changeText(context.WithoutCancel(ctx), c) })
	if err == nil {
		tg.syncSemaphores(context.WithoutCancel(ctx))
	}
	return err
}

// changeText is change with a context that doesn't end: what is begun is finished
// or undone, both of which take injected calls. Only while it is planned it is
// given up when answer says so.
func (tg *Target) changeText(ctx context.Context, c *changeset) (err error) {
	if err := tg.ensureArea(ctx, max(len(c.add), tg.mayCome())); err != nil {
		return err
	}
	tg.discardStuck()
	if c.fresh, err = tg.enroll(c.add); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tg.dismiss(c.fresh)
		}
	}()
	if err := tg.forgetGone(ctx, c); err != nil {
		return err
	}
	if err := tg.makeWay(ctx, c.own); err != nil {
		return err
	}
	tg.unwatch(ctx, c)
	c.add = slices.DeleteFunc(slices.Clone(c.add), func(w planner.Request) bool { return w.Kind == planner.Watch })
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

// errText says that the text was changed while a plan was made, which is of
// another state then.
var errText = errors.New("the text has changed")

// takenError says that the program has mapped memory where a plan had found none.
type takenError struct{ plan.Range }

func (e *takenError) Error() string {
	return fmt.Sprintf("the program has mapped memory at %v", symbols.Addr(e.Lo))
}

// disturbed is how often a plan is made with stops being answered meanwhile.
const disturbed = 3

// exchange carries a change out. On an error the target is as it was before.
func (tg *Target) exchange(ctx context.Context, c *changeset) error {
	ws := c.requests(tg)
	if err := tg.learn(ws); err != nil {
		return err
	}
	planned, err := tg.plan(c, ws)
	if err != nil {
		return err
	}
	built, err := tg.build(ctx, planned)
	if err != nil {
		return err
	}
	return tg.commit(ctx, built)
}

// plan plans a change: what comes, and what stays of what makes way for it.
func (tg *Target) plan(c *changeset, ws []planner.Request) (*batch, error) {
	defer tg.readAhead(len(ws))()
	for _, w := range ws {
		PlacedOf(w).findFacts()
	}
	want := planner.Wanted{Requests: ws, Avoid: c.avoid}
	for _, x := range c.own {
		want.Own = append(want.Own, x.Site.Addr)
	}
	p, err := tg.ground(c.out).Plan(want)
	if err != nil {
		return nil, err
	}
	b := &batch{Plan: p, patches: make([]*Patch, len(p.Patches)), out: c.out, drop: c.drop, fresh: c.fresh, own: c.own}
	for i, q := range p.Patches {
		b.patches[i] = newPatch(q)
	}
	return b, nil
}

// enroll gives the probes of a batch that have no number theirs.
func (tg *Target) enroll(ws []planner.Request) (fresh []*Placed, err error) {
	is := map[*Placed]bool{}
	comes := func(w planner.Request) bool { return PlacedOf(w).feed == nil || PlacedOf(w).removed }
	for _, w := range ws {
		if comes(w) {
			is[PlacedOf(w)] = true
		}
	}
	if err := tg.Feed.hasRoom(len(is)); err != nil {
		return nil, err
	}
	for _, w := range ws {
		if !comes(w) {
			continue
		}
		if err := tg.Feed.add(PlacedOf(w)); err != nil {
			tg.dismiss(fresh)
			return nil, err
		}
		fresh = append(fresh, PlacedOf(w))
	}
	for _, w := range ws {
		if is[PlacedOf(w)] && w.Kind != planner.Watch {
			PlacedOf(w).wants = append(PlacedOf(w).wants, w)
		}
	}
	return fresh, nil
}

// dismiss takes back the numbers of probes that were never armed. One whose jump
// could not be taken out again keeps its, switched off.
func (tg *Target) dismiss(fresh []*Placed) {
	inText := map[*Placed]bool{}
	for _, q := range tg.Patches.List {
		if q.Armed {
			for _, p := range q.Probes() {
				inText[p] = true
			}
		}
	}
	for _, p := range slices.Backward(fresh) {
		if inText[p] {
			p.feed.leave(p, true)
		} else {
			tg.Feed.free(p)
		}
		p.wants = nil // it may be tried again
	}
}

// affected finds what makes way for a change: jumps that cover places of it,
// jumps and breakpoints of the probes that go, breakpoints beside them, and
// all that the probes in those have elsewhere.
func (tg *Target) affected(c *changeset) *outgoing {
	f := tg.newFinder()
	for p := range c.drop {
		f.probe(p)
		for _, w := range p.wants {
			for a := w.Site.Addr - nearby; a <= w.Site.Addr+nearby && len(tg.Sites) > 0; a++ {
				f.site(tg.Sites[a])
			}
		}
	}
	for p := range tg.lost {
		if tg.Placed[p] {
			f.probe(p)
		}
	}
	for _, w := range c.add {
		f.place(w.Place)
	}
	for p := range f.seen {
		if !c.drop[p] {
			f.out.stay[p] = true
		}
	}
	return f.out
}

// finder collects what a change touches.
type finder struct {
	tg   *Target
	out  *outgoing
	seen map[*Placed]bool
}

// newFinder begins to find what a change takes out.
func (tg *Target) newFinder() *finder {
	return &finder{tg: tg, out: newOutgoing(), seen: map[*Placed]bool{}}
}

// place adds what is at a place.
func (f *finder) place(w *assess.Place) {
	lo, behind := uint64(w.Site.Addr), uint64(w.Inst.Len)
	// A jump is behind the endbr64 that is its place.
	for _, p := range f.tg.Patches.pages.Near(lo, lo+behind+1) {
		if p.Armed && (p.covers(w.Site.Addr, int(behind)) || slices.Contains(p.Plan.AllSites(), lo)) {
			f.patch(p)
		}
	}
	f.site(f.tg.Sites[w.Site.Addr])
}

func (f *finder) probe(p *Placed) {
	if f.seen[p] || p.target != f.tg {
		return
	}
	f.seen[p] = true
	for _, w := range p.wants {
		f.place(w.Place)
	}
	if p.ByExits != nil {
		for _, w := range p.ByExits.Exits {
			f.place(w.Place)
		}
	}
}

func (f *finder) patch(p *Patch) {
	if f.out.hasPatch(p) {
		return
	}
	f.out.addPatch(p)
	for _, x := range p.Probes() {
		f.probe(x)
	}
}

// site adds a breakpoint. One that kprobe itself needs, or where calls return
// to, or that leads into an exit's detour, stays what it is.
func (f *finder) site(st *Site) {
	if st == nil || !st.Armed || f.out.hasSite(st) {
		return
	}
	if !st.own() {
		f.out.addSite(st)
	}
	for _, list := range [][]*Placed{st.probes, st.returns, st.exits} {
		for _, p := range list {
			f.probe(p)
		}
	}
}

// requests lists what is to be armed: what stays of what makes way, and what comes.
func (c *changeset) requests(tg *Target) []planner.Request {
	if stay := c.out.wants(tg); len(stay) > 0 {
		return append(stay, c.add...)
	}
	return slices.Clip(c.add)
}

// wants lists what is to be armed anew, in the order in which it was added:
// all places of the probes that stay, but those at breakpoints that stay.
func (o *outgoing) wants(tg *Target) []planner.Request {
	var out []planner.Request
	for p := range o.stay {
		for _, w := range p.wants {
			if !tg.hangsOn(tg.Sites[w.Site.Addr], p, o) {
				out = append(out, w)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b planner.Request) int { return cmp.Compare(PlacedOf(a).seq, PlacedOf(b).seq) })
	return out
}

// hangsOn reports whether a probe is at a breakpoint that stays.
func (tg *Target) hangsOn(st *Site, p *Placed, o *outgoing) bool {
	return st != nil && !o.hasSite(st) && st.Armed &&
		(slices.Contains(st.probes, p) || slices.Contains(st.returns, p) || slices.Contains(st.exits, p))
}
