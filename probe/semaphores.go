package probe

import (
	"context"
	"errors"
	"slices"

	"kprobe/probe/semaphore"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Which semaphores are raised follows the probes that are in and on; how that is done,
// and undone, is package semaphore's.

// semaphores are those of an address space.
type semaphores struct {
	semaphore.Set
	seen []semaphored // the probes that there were
}

// semaphored is a probe with a semaphore, and whether it was on when that was looked
// at.
type semaphored struct {
	p   *placed
	off bool
}

// semaphore is where the counter of a place is; 0: it has none.
func (p *placed) semaphore() symbols.Addr {
	if p.where.Semaphore == 0 || p.where.Module == nil {
		return 0
	}
	return p.where.Module.Addr(p.where.Semaphore)
}

// syncSemaphores raises the semaphores of the probes that are in and on, and lowers
// those that no such probe is for. What can't be raised is a warning: the probe is in,
// and may have no hits.
func (tg *target) syncSemaphores(ctx context.Context) {
	if tg.area == nil || tg.dying || tg.over {
		return
	}
	want, wanted := map[symbols.Addr]*placed{}, map[symbols.Addr]bool{}
	s := &tg.semaphores
	s.seen = nil
	for p := range tg.placed {
		at := p.semaphore()
		if at == 0 {
			continue
		}
		off := p.feed.disabled(p)
		s.seen = append(s.seen, semaphored{p, off})
		if !off {
			want[at], wanted[at] = p, true
		}
	}
	tg.s.listSemaphored()
	up, down := s.Due(wanted)
	if len(up)+len(down) == 0 {
		return
	}
	failed := func(at symbols.Addr, err error) {
		tg.s.warnf("%s: the program may skip it, as its semaphore at %v could not be raised: %v", want[at].where.Name, at, err)
	}
	err := s.Prepare(len(up), semaphore.Layer{Proc: tg.proc, File: tg.area.File, Map: tg.area.MapData(ctx)})
	if err == nil {
		err = tg.withStopped(ctx, func([]*tracee.Thread) error { return s.Change(tg.proc, up, down, failed) })
	}
	if err = tracee.IgnoreLate(err); err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.s.warnf("process %d: semaphores of statically defined probes: %v", tg.proc.PID(), err)
	}
}

// forgetSemaphores forgets those whose library is gone, with the counter. before are
// the modules that there were.
func (tg *target) forgetSemaphores(before []*symbols.Module) {
	err := tg.semaphores.Forget(tg.proc, func(at symbols.Addr) bool {
		m := tg.space.ModuleAt(at)
		return m == nil || !slices.Contains(before, m)
	})
	if err != nil {
		tg.s.logf("%v", err)
	}
}

// listSemaphored lists the probes of all targets of which it is to be seen when they
// are switched on and off.
func (s *engine) listSemaphored() {
	var list []semaphored
	for _, tg := range s.targets {
		if tg.isMain() && tg.area != nil {
			list = append(list, tg.semaphores.seen...)
		}
	}
	s.semaphored.Store(&list)
}

// semaphoresDue reports whether a probe with a semaphore was switched since that was
// looked at. Any goroutine may call it.
func (s *engine) semaphoresDue() bool {
	list := s.semaphored.Load()
	return list != nil && slices.ContainsFunc(*list, semaphored.switched)
}

// semaphoresAtTick raises and lowers semaphores of probes that were switched.
func (tg *target) semaphoresAtTick(ctx context.Context) {
	if tg.isMain() && slices.ContainsFunc(tg.semaphores.seen, semaphored.switched) {
		if err := tg.comeBack(ctx); err != nil {
			tg.s.logf("process %d: semaphores of statically defined probes: %v", tg.proc.PID(), err)
			return
		}
		tg.syncSemaphores(ctx)
	}
}

// switched reports whether the probe was switched since.
func (x semaphored) switched() bool { return x.p.feed.disabled(x.p) != x.off }
