package probe

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How the set of probes of a running target changes
//
// Places that come and go may share a function, an address, or the bytes of a
// jump with places that stay. Whatever a change touches is planned anew
// together: the probes that come, and those that stay and whose jumps or
// breakpoints are in the way of a better plan. All of that happens while the
// target runs: names, proofs, plans, copies, detours. Then, in one stop:
//
//  1. the jumps and breakpoints that make way get their bytes back;
//  2. threads under the new jumps are moved, the new jumps and breakpoints
//     are written.
//
// So a probe that stays misses no hit and takes none twice: a thread is at the
// old one's code or at the new one's, and both count under the same number.
// Threads in the code that was led to before run on through it (retire.go).
// Where nothing has to make way, breakpoints are written without a stop.

// outgoing is what makes way in a change.
type outgoing struct {
	patches []*patch
	sites   []*site
	stay    map[*placed]bool // probes that were in them and are armed anew
	lists   []siteLists      // what hung on the sites, to go back
}

// siteLists is what hangs on a site.
type siteLists struct {
	probes, returns, exits []*placed
	jcc                    byte
}

func (o *outgoing) empty() bool { return len(o.patches) == 0 && len(o.sites) == 0 }

// hasSite reports whether a site makes way. o may be nil.
func (o *outgoing) hasSite(st *site) bool { return o != nil && slices.Contains(o.sites, st) }

// hasPatch reports whether a jump makes way. o may be nil.
func (o *outgoing) hasPatch(p *patch) bool { return o != nil && slices.Contains(o.patches, p) }

// occupied reports whether a breakpoint is at an address that doesn't make way
// in the change that is being planned.
func (tg *target) occupied(a symbols.Addr) bool {
	st := tg.sites[a]
	return st != nil && !tg.leaving.hasSite(st)
}

// nearby is how far from a probe that goes another may stand that could not be
// a jump because of it: a jump covers at most two long instructions.
const nearby = 2 * maxInsn

// change puts the places of add in and takes the probes of drop out. On an
// error the target is as it was before. It is for the target that owns the
// memory, not for a child that shares it.
func (tg *target) change(ctx context.Context, add []want, drop map[*placed]bool) (err error) {
	if len(add) == 0 && len(drop) == 0 {
		return nil
	}
	// What is begun here is finished or undone, both of which take injected
	// calls: from here on nobody's haste counts.
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := tg.ensureArea(ctx); err != nil {
		return err
	}
	fresh, err := tg.enroll(add)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tg.dismiss(fresh)
		}
	}()
	if err := tg.forgetGone(ctx, add); err != nil {
		return err
	}
	if err := tg.makeWay(ctx, add); err != nil {
		return err
	}
	return tg.exchange(ctx, tg.affected(add, drop), add, fresh, drop)
}

// exchange plans and arms what stays of old anew, together with add, whose
// probes are fresh. On an error the target is as it was before.
func (tg *target) exchange(ctx context.Context, old *outgoing, add []want, fresh []*placed, drop map[*placed]bool) error {
	ws := append(old.wants(tg), add...)
	before := keepPlans(ws)
	tg.leaving = old
	rest, patches, err := tg.optimize(ctx, ws)
	tg.leaving = nil
	if err == nil {
		err = tg.replace(ctx, old, rest, patches)
	}
	if err != nil {
		before.restore()
		return err
	}
	for _, p := range fresh {
		tg.placed[p] = true
		p.ev.most.Store(max(p.ev.most.Load(), p.ev.places.Add(1)))
	}
	for _, x := range before {
		if x.p.goABI && x.plan.byExits != nil && x.p.byExits == nil && !drop[x.p] {
			tg.adoptCalls(x.p, x.plan.byExits)
		}
	}
	tg.retire(old, drop)
	for _, w := range rest {
		if w.p != nil && w.kind != wantExit && w.p.why != "" {
			tg.s.logf("%s at %s is a breakpoint: %s", w.p.ev.Name, w.at.Name, w.p.why)
		}
	}
	return nil
}

// enroll gives the probes of a batch that have no number theirs.
func (tg *target) enroll(ws []want) (fresh []*placed, err error) {
	for _, w := range ws {
		if w.p == nil || w.p.tap != nil && !w.p.removed {
			continue
		}
		if err := tg.tap.add(w.p); err != nil {
			tg.dismiss(fresh)
			return nil, err
		}
		fresh = append(fresh, w.p)
	}
	for _, w := range ws {
		if w.p != nil && slices.Contains(fresh, w.p) {
			w.p.wants = append(w.p.wants, w)
		}
	}
	return fresh, nil
}

// dismiss takes back the numbers of probes that were never armed.
func (tg *target) dismiss(fresh []*placed) {
	for _, p := range fresh {
		tg.tap.free(p)
		p.wants = nil // it may be tried again
	}
}

// affected finds what makes way for a change: jumps that cover places of it,
// jumps and breakpoints of the probes that go, breakpoints beside them, and
// all that the probes in those have elsewhere.
func (tg *target) affected(add []want, drop map[*placed]bool) *outgoing {
	f := &finder{tg: tg, out: &outgoing{stay: map[*placed]bool{}}, seen: map[*placed]bool{}}
	for p := range drop {
		f.probe(p)
		for _, w := range p.wants {
			for a := w.at.Addr - nearby; a <= w.at.Addr+nearby && len(tg.sites) > 0; a++ {
				f.site(tg.sites[a])
			}
		}
	}
	for _, w := range add {
		if w.kind != wantHook && w.kind != wantLanding {
			f.place(w)
		}
	}
	for p := range f.seen {
		if !drop[p] {
			f.out.stay[p] = true
		}
	}
	return f.out
}

// finder collects what a change touches.
type finder struct {
	tg   *target
	out  *outgoing
	seen map[*placed]bool
}

// place adds what is at a place.
func (f *finder) place(w want) {
	lo := uint64(w.at.Addr)
	for _, p := range f.tg.patches.pages.near(lo, lo+uint64(w.inst.Len)) {
		if p.armed && p.covers(w.at.Addr, int(w.inst.Len)) {
			f.patch(p)
		}
	}
	f.site(f.tg.sites[w.at.Addr])
}

func (f *finder) probe(p *placed) {
	if f.seen[p] || p.target != f.tg {
		return
	}
	f.seen[p] = true
	for _, w := range p.wants {
		f.place(w)
	}
	if p.byExits != nil {
		for _, w := range p.byExits.exits {
			f.place(w)
		}
	}
}

func (f *finder) patch(p *patch) {
	if f.out.hasPatch(p) {
		return
	}
	f.out.patches = append(f.out.patches, p)
	for _, x := range p.probes() {
		f.probe(x)
	}
}

// site adds a breakpoint. One that kprobe itself needs, or where calls return
// to, or that leads into an exit's detour, stays what it is.
func (f *finder) site(st *site) {
	if st == nil || !st.armed || f.out.hasSite(st) {
		return
	}
	if len(st.hooks) == 0 && !st.lands && st.redirect == 0 {
		f.out.sites = append(f.out.sites, st)
	}
	for _, list := range [][]*placed{st.probes, st.returns, st.exits} {
		for _, p := range list {
			f.probe(p)
		}
	}
}

// wants lists what is to be armed anew, in the order in which it was added:
// all places of the probes that stay, but those at breakpoints that stay.
func (o *outgoing) wants(tg *target) []want {
	var out []want
	for p := range o.stay {
		for _, w := range p.wants {
			if !tg.hangsOn(tg.sites[w.at.Addr], p, o) {
				w.counted = true
				out = append(out, w)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b want) int { return cmp.Compare(a.p.seq, b.p.seq) })
	return out
}

// hangsOn reports whether a probe is at a breakpoint that stays.
func (tg *target) hangsOn(st *site, p *placed, o *outgoing) bool {
	return st != nil && !o.hasSite(st) && st.armed &&
		(slices.Contains(st.probes, p) || slices.Contains(st.returns, p) || slices.Contains(st.exits, p))
}

// plans are the plans of probes before a change.
type plans []placedPlan

type placedPlan struct {
	p    *placed
	plan armedAs
}

func keepPlans(ws []want) plans {
	var out plans
	for _, w := range ws {
		if w.p != nil && w.counted {
			out = append(out, placedPlan{w.p, w.p.armedAs})
		}
	}
	return out
}

func (ps plans) restore() {
	for _, x := range ps {
		x.p.armedAs = x.plan
	}
}

// replace writes what was planned over what makes way.
func (tg *target) replace(ctx context.Context, old *outgoing, rest []want, patches []*patch) (err error) {
	old.takeLists()
	defer func() {
		if err != nil {
			old.hangLists()
		}
	}()
	// Breakpoints whose probes stay breakpoints need no change of the text.
	kept := map[*site]bool{}
	for _, w := range rest {
		if st := tg.sites[w.at.Addr]; old.hasSite(st) {
			kept[st] = true
		}
	}
	all := old.sites
	old.sites = slices.DeleteFunc(slices.Clone(all), func(st *site) bool { return kept[st] })
	defer func() {
		if err != nil {
			old.sites = all
		}
	}()
	put := func(fresh []*site) error {
		if !old.empty() {
			return tg.swap(ctx, old, fresh, patches)
		}
		if err := tg.writeAll(fresh); err != nil {
			return err
		}
		return tg.armPatches(ctx, patches)
	}
	if len(rest) == 0 {
		return put(nil)
	}
	return tg.layTraps(ctx, rest, put)
}

func (o *outgoing) takeLists() {
	for _, st := range o.sites {
		o.lists = append(o.lists, siteLists{st.probes, st.returns, st.exits, st.jcc})
		st.probes, st.returns, st.exits, st.jcc = nil, nil, nil, 0
	}
}

func (o *outgoing) hangLists() {
	for i, st := range o.sites {
		l := o.lists[i]
		st.probes, st.returns, st.exits, st.jcc = l.probes, l.returns, l.exits, l.jcc
	}
}

// swap takes the old out and writes the new in one stop.
func (tg *target) swap(ctx context.Context, old *outgoing, fresh []*site, patches []*patch) error {
	if err := tg.catchFor(ctx, patches); err != nil {
		return err
	}
	tg.patches.add(patches)
	for _, p := range patches {
		if err := tg.enter(p); err != nil {
			return errors.Join(err, tg.unenter(patches, old))
		}
	}
	err := tg.withStopped(ctx, func(stopped []*tracee.Thread) error {
		if err := errors.Join(tg.lateUnder(old.patches), tg.lateUnder(patches)); err != nil {
			return errors.Join(err, tg.unenter(patches, old))
		}
		if err := tg.restorePatches(old.patches); err != nil {
			return errors.Join(err, tg.putBack(old, stopped), tg.unenter(patches, old))
		}
		if err := tg.restoreSites(old.sites); err != nil {
			return errors.Join(err, tg.putBack(old, stopped), tg.unenter(patches, old))
		}
		for _, st := range old.sites {
			delete(tg.sites, st.addr)
		}
		tg.guard(patches)
		err := tg.armStopped(patches, stopped)
		if err == nil {
			err = tg.writeAll(fresh)
		}
		if err == nil {
			return nil
		}
		for _, st := range fresh {
			err = errors.Join(err, tg.restore(st))
		}
		return errors.Join(err, tg.restorePatches(patches), tg.putBack(old, stopped))
	})
	return tg.ignoreLate(err)
}

// unenter takes patches that were not written out of the journal. The guards of
// those that were to make way stay theirs.
func (tg *target) unenter(list []*patch, old *outgoing) error {
	err := tg.restorePatches(list)
	tg.guard(old.patches)
	return err
}

// guard has threads at the guards of patches go on there, after others' guards
// or breakpoints at the same addresses were given up.
func (tg *target) guard(list []*patch) {
	for _, p := range list {
		for g, to := range p.guards() {
			tg.patches.guards[symbols.Addr(g.At)] = to
			// It was entered before the stop: the table has its key.
			_ = tg.area.table.Insert(guardKey(g), uint64(to))
		}
	}
}

// putBack writes again what made way for a change that has failed.
func (tg *target) putBack(old *outgoing, stopped []*tracee.Thread) error {
	var errs []error
	var lost []*patch
	for _, p := range old.patches {
		if !p.armed {
			errs = append(errs, tg.enter(p))
			lost = append(lost, p)
		}
	}
	tg.guard(lost)
	errs = append(errs, tg.armStopped(lost, stopped))
	for _, st := range old.sites {
		if !st.armed {
			tg.sites[st.addr] = st
			errs = append(errs, tg.write(st))
		}
	}
	return errors.Join(errs...)
}
