package engine

import (
	"context"
	"errors"

	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a plan is committed
//
// A plan that is built is written into the text. If the change only adds breakpoints, they are
// written one by one and no thread is stopped. If it only adds jumps, and more than portionStep
// of them, they are written in several stops (portions.go). Every other change is one stop of all
// threads:
//
//   1. The outgoing jumps and breakpoints give way: the text gets its original bytes back.
//   2. Threads that stand under the new jumps are moved to the copies.
//   3. The new jumps are written, then the new breakpoints.
//
// After that the session notes what is armed, and how. If a step fails, the steps before it are
// undone in reverse, and the session notes nothing.

// commit writes a built plan into the text. On an error the text is as before, unless the error
// of undoing it says otherwise (lose). The error is errText if the text has changed since the
// plan was made.
func (tg *Target) commit(ctx context.Context, b *built) (err error) {
	if tg.text != b.Text {
		tg.discardAll(b.sites)
		return errText
	}
	tg.text++
	unhang := tg.hang(b)
	kept := map[*Site]bool{}
	for _, w := range b.places() {
		kept[tg.Sites[w.Site.Addr]] = true
	}
	x := &exchanged{built: b, unhang: unhang, calls: tg.losesCalls(b)}
	for _, st := range b.out.sites {
		if !kept[st] { // else nothing changes in the text
			x.gone = append(x.gone, st)
		}
	}
	if err := tg.writeText(ctx, x); err != nil {
		unhang()
		tg.discardAll(b.sites)
		tg.retireFailed(x)
		return err
	}
	tg.take(x)
	return nil
}

// exchanged is a plan that is being committed.
type exchanged struct {
	*built
	gone   []*Site   // sites whose breakpoints are taken out
	calls  []*Placed // probes whose active calls are followed by breakpoints from now on
	unhang func()    // undoes hang
	// entered says that the target knows the new jumps (Target.Patches), so that they must be retired
	// if the change fails.
	entered bool
}

// hang assigns the plan's probes to their sites. undo restores the previous assignment.
func (tg *Target) hang(b *built) (undo func()) {
	before := map[*Site]hangings{}
	for _, st := range b.out.sites {
		before[st] = st.hangings
		st.probes, st.returns, st.exits, st.jcc = nil, nil, nil, 0
	}
	for _, w := range b.Traps {
		st := tg.Sites[w.Site.Addr]
		if _, known := before[st]; !known {
			before[st] = st.hangings
		}
		hang(st, w)
	}
	for _, w := range b.own {
		st := tg.Sites[w.Site.Addr]
		if _, known := before[st]; !known {
			before[st] = st.hangings
		}
		st.serve(w)
	}
	return func() {
		for st, h := range before {
			st.hangings = h
		}
		clear(before)
	}
}

// losesCalls lists the return probes of Go functions whose exits change from jumps to
// breakpoints. A breakpoint at an exit knows only calls that a breakpoint at the entry has noted,
// so the active calls of these probes must be adopted.
func (tg *Target) losesCalls(b *built) (list []*Placed) {
	for x, c := range b.Courses {
		if p := x.Owner.(*Placed); p.GoABI && p.ByExits != nil && c.ByExits == nil && !b.drop[p] {
			list = append(list, p)
		}
	}
	return list
}

// writeText changes the text. On an error it has put the old jumps and breakpoints back, or has
// noted the probes that it could not put back (lose).
func (tg *Target) writeText(ctx context.Context, x *exchanged) error {
	still := len(x.out.patches) == 0 && len(x.gone) == 0
	many := still && x.inPortions()
	if still && !many {
		if err := tg.WriteAll(x.sites); err != nil {
			return err
		}
		if len(x.patches) == 0 {
			return nil
		}
	}
	tg.Patches.add(x.patches)
	x.entered = true
	for _, p := range x.patches {
		if err := tg.Enter(p); err != nil {
			tg.unenter(x)
			return err
		}
	}
	if many {
		err := tg.armInPortions(ctx, x)
		if err == nil {
			if err = tg.WriteAll(x.sites); err != nil {
				err = errors.Join(err, tg.disarmAll(ctx, x))
			}
		}
		return err
	}
	err := tg.stoppedBetweenCalls(ctx, x.calls, func(stopped []*tracee.Thread) error {
		if err := errors.Join(tg.lateUnder(x.out.patches), tg.lateUnder(x.patches)); err != nil {
			tg.unenter(x)
			return err
		}
		if err := tg.RestorePatches(x.out.patches, stopped); err != nil {
			err = errors.Join(err, tg.putBack(x, stopped))
			tg.unenter(x)
			return err
		}
		if err := tg.RestoreSites(x.gone); err != nil {
			err = errors.Join(err, tg.putBack(x, stopped))
			tg.unenter(x)
			return err
		}
		for _, st := range x.gone {
			delete(tg.Sites, st.Addr)
		}
		tg.guard(x.patches)
		err := tg.ArmStopped(x.patches, stopped)
		if err == nil && !still {
			err = tg.WriteAll(x.sites)
		}
		if err == nil {
			for _, p := range x.calls {
				tg.adoptCalls(p, p.ByExits)
			}
			return nil
		}
		var undone []error
		for _, st := range x.sites {
			undone = append(undone, tg.restore(st))
		}
		undone = append(undone, tg.RestorePatches(x.patches, stopped))
		if uerr := errors.Join(undone...); uerr != nil {
			// The new patches may overlap the old ones, and what is in the text now isn't known.
			// So the old ones are not written.
			tg.lose(x)
			return errors.Join(err, uerr)
		}
		return errors.Join(err, tg.putBack(x, stopped))
	})
	return tg.ignoreLate(err)
}

// retireFailed retires the new jumps of a failed change that were taken out of the text again. They
// were in it if the change was written in portions; then their probes keep their numbers until no
// thread can be in the code.
func (tg *Target) retireFailed(x *exchanged) {
	if !x.entered {
		return
	}
	r := &retired{}
	for _, p := range x.patches {
		if !p.Armed {
			r.patches = append(r.patches, p)
		}
	}
	tg.Retired.add(r)
}

// take notes in the session what the committed plan has armed, and how.
func (tg *Target) take(x *exchanged) {
	for _, p := range x.fresh {
		tg.armed(p)
		p.Ev.most.Store(max(p.Ev.most.Load(), p.Ev.places.Add(1)))
	}
	for p, c := range x.Courses {
		p.Course = *c
	}
	clear(tg.lost)
	tg.noteEntries(x.patches)
	if x.Pools != nil {
		tg.watchMissed()
	}
	tg.retire(x)
	for _, w := range x.Traps {
		if w.Kind != planner.Exit && w.Kind != planner.Redirect && w.P.Why != "" {
			tg.Engine.Logf("%s at %s is a breakpoint: %s", PlacedOf(w).Ev.Name, w.Site.Name(), w.P.Why)
		}
	}
}

// unenter removes the new patches, of which nothing was written, from the journal. Guard addresses
// that they have in common with the outgoing patches belong to the outgoing ones again. What is noted of
// their probes stays: the outgoing patches may serve these probes.
func (tg *Target) unenter(x *exchanged) {
	tg.unnoteEntries(x.patches)
	for _, p := range x.patches {
		for q := p; q != nil; q = q.island {
			tg.forgetEntries(q)
		}
	}
	tg.guard(x.out.patches)
}

// guard enters the guards of patches, so that threads that trap there continue in these patches.
// It is needed after the guards or breakpoints of other patches at the same addresses were removed.
func (tg *Target) guard(list []*Patch) {
	for _, p := range list {
		for g, to := range p.Guards() {
			tg.Patches.Guards[symbols.Addr(g.At)] = to
			// Insert can't fail: the key was entered before the stop.
			_ = tg.Area.Table.Insert(GuardKey(g), uint64(to))
		}
	}
}

// putBack writes the outgoing jumps and breakpoints of a failed change into the text again.
func (tg *Target) putBack(x *exchanged, stopped []*tracee.Thread) error {
	x.unhang()
	var errs []error
	var lost []*Patch
	for _, p := range x.out.patches {
		if !p.Armed {
			errs = append(errs, tg.Enter(p))
			lost = append(lost, p)
		}
	}
	tg.guard(lost)
	errs = append(errs, tg.ArmStopped(lost, stopped))
	for _, st := range x.gone {
		if !st.Armed {
			tg.Sites[st.Addr] = st
			errs = append(errs, tg.write(st))
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		tg.lose(x)
	}
	return err
}

// lose notes the probes of outgoing jumps and breakpoints that could not be put back. The next
// change arms them anew.
func (tg *Target) lose(x *exchanged) {
	x.unhang()
	for p := range x.out.stay {
		tg.lost[p] = true
	}
	for _, q := range x.out.patches {
		if !q.Armed {
			tg.Retired.lostCode = append(tg.Retired.lostCode, q)
		}
		for _, p := range q.Probes() {
			tg.lost[p] = true
		}
	}
	for _, st := range x.out.sites {
		for _, list := range [][]*Placed{st.probes, st.returns, st.exits} {
			for _, p := range list {
				tg.lost[p] = true
			}
		}
	}
	if tg.over || tracee.Ending(tg.Proc.PID()) || tg.Proc.Executed(tg.Engine.Run) {
		return // the text is gone with its memory
	}
	tg.Engine.Warnf("process %d: a change of its probes could be neither finished nor undone: some have no hits until the next one", tg.Proc.PID())
}
