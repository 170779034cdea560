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
// What was built is put into the text. If breakpoints only come, they are written one by one.
// Everything else happens in one stop: what makes way gets its bytes back, threads under the
// new jumps are moved, and jumps and breakpoints are written. Then the session is told what is
// armed, and how. If any of it fails, what was done is undone in reverse, and the session's
// knowledge is what it was.

// commit puts a plan that is built into the text, or leaves the target as it was.
// The error is errText if the plan is of a text that has changed since.
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
		return err
	}
	tg.take(x)
	return nil
}

// exchanged is a plan that is being committed.
type exchanged struct {
	*built
	gone   []*Site   // whose breakpoints are taken out
	calls  []*Placed // of which calls are under way that will be followed by breakpoints
	unhang func()
}

// hang has sites serve what the plan says. The function that it gives undoes that.
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

// losesCalls lists the return probes of Go functions whose exits become breakpoints,
// which know only calls that a breakpoint has seen.
func (tg *Target) losesCalls(b *built) (list []*Placed) {
	for x, c := range b.Courses {
		if p := x.Owner.(*Placed); p.GoABI && p.ByExits != nil && c.ByExits == nil && !b.drop[p] {
			list = append(list, p)
		}
	}
	return list
}

// writeText changes the text, or leaves it as it was.
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
	for _, p := range x.patches {
		if err := tg.Enter(p); err != nil {
			return errors.Join(err, tg.unenter(x))
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
			return errors.Join(err, tg.unenter(x))
		}
		if err := tg.RestorePatches(x.out.patches, stopped); err != nil {
			return errors.Join(err, tg.putBack(x, stopped), tg.unenter(x))
		}
		if err := tg.RestoreSites(x.gone); err != nil {
			return errors.Join(err, tg.putBack(x, stopped), tg.unenter(x))
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
			// What is there now may overlap what was: neither is known for sure.
			tg.lose(x)
			return errors.Join(err, uerr)
		}
		return errors.Join(err, tg.putBack(x, stopped))
	})
	return tg.ignoreLate(err)
}

// take notes what is armed now, and how.
func (tg *Target) take(x *exchanged) {
	for _, p := range x.fresh {
		tg.Placed[p] = true
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
			tg.Engine.Logf("%s at %s is a breakpoint: %s", PlacedOf(w).Ev.Name, w.Site.Name, w.P.Why)
		}
	}
}

// unenter takes patches that were not written out of the journal. The guards of
// those that were to make way stay theirs.
func (tg *Target) unenter(x *exchanged) error {
	err := tg.RestorePatches(x.patches, nil) // none is armed
	tg.guard(x.out.patches)
	return err
}

// guard has threads at the guards of patches go on there, after others' guards
// or breakpoints at the same addresses were given up.
func (tg *Target) guard(list []*Patch) {
	for _, p := range list {
		for g, to := range p.Guards() {
			tg.Patches.Guards[symbols.Addr(g.At)] = to
			// It was entered before the stop: the table has its key.
			_ = tg.Area.Table.Insert(GuardKey(g), uint64(to))
		}
	}
}

// putBack writes again what made way for a change that has failed.
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

// lose notes the probes of what made way and isn't in the text again: the next change
// arms them anew.
func (tg *Target) lose(x *exchanged) {
	x.unhang()
	for p := range x.out.stay {
		tg.lost[p] = true
	}
	for _, q := range x.out.patches {
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
		return // they are gone with the memory that they were in
	}
	tg.Engine.Warnf("process %d: a change of its probes could be neither finished nor undone: some have no hits until the next one", tg.Proc.PID())
}
