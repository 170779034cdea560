package engine

import (
	"context"
	"errors"
	"slices"

	"kprobe/probe/semaphore"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// A semaphore is raised while a probe that needs it is armed and switched on. Package semaphore
// raises and lowers it.

// semaphores are the semaphores of an address space.
type semaphores struct {
	semaphore.Set
	seen []semaphored // the probes with semaphores at the last syncSemaphores
}

// semaphored is a probe with a semaphore, and whether it was off at the last syncSemaphores.
type semaphored struct {
	p   *Placed
	off bool
}

// semaphore is the address of the place's semaphore; 0: it has none.
func (p *Placed) semaphore() symbols.Addr {
	semaphore := p.Where.NamedAs().Semaphore
	if semaphore == 0 || p.Where.Module == nil {
		return 0
	}
	return p.Where.Module.Addr(semaphore)
}

// syncSemaphores raises the semaphores of the probes that are armed and switched on, and lowers those
// that no such probe needs. Where triggers may switch a probe on when nobody is there to raise its semaphore, it is raised
// from the start. If one can't be raised, it warns: the probe is armed, but the program may
// skip it.
func (tg *Target) syncSemaphores(ctx context.Context) {
	if tg.Area == nil || tg.dying || tg.over {
		return
	}
	want, wanted := map[symbols.Addr]*Placed{}, map[symbols.Addr]bool{}
	s := &tg.Semaphores
	s.seen = nil
	for p := range tg.apart {
		at := p.semaphore()
		if at == 0 {
			continue
		}
		off := p.feed.disabled(p)
		s.seen = append(s.seen, semaphored{p, off})
		if !off || tg.Engine.Opts.Detach && tg.Engine.Triggers.Kind(p.Ev.Group+"/"+p.Ev.Name) != 0 {
			want[at], wanted[at] = p, true
		}
	}
	tg.Engine.listSemaphored()
	up, down := s.Due(wanted)
	if len(up)+len(down) == 0 {
		return
	}
	failed := func(at symbols.Addr, err error) {
		tg.Engine.Warnf("%s: the program may skip it, as its semaphore at %v could not be raised: %v", want[at].Where.Name(), at, err)
	}
	err := s.Prepare(len(up), semaphore.Layer{Proc: tg.Proc, File: tg.Area.File, Map: tg.Area.MapData(ctx)})
	if err == nil {
		err = tg.WithStopped(ctx, func([]*tracee.Thread) error { return s.Change(tg.Proc, up, down, failed) })
	}
	if err = tracee.IgnoreLate(err); err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.Engine.Warnf("process %d: semaphores of statically defined probes: %v", tg.Proc.PID(), err)
	}
}

// forgetSemaphores forgets the semaphores whose library was unloaded. before are the modules before the
// change.
func (tg *Target) forgetSemaphores(before []*symbols.Module) {
	err := tg.Semaphores.Forget(tg.Proc, func(at symbols.Addr) bool {
		m := tg.Space.ModuleAt(at)
		return m == nil || !slices.Contains(before, m)
	})
	if err != nil {
		tg.Engine.Logf("%v", err)
	}
}

// listSemaphored publishes the probes with semaphores of all targets, for semaphoresDue.
func (s *Engine) listSemaphored() {
	var list []semaphored
	for _, tg := range s.Targets {
		if tg.IsMain() && tg.Area != nil {
			list = append(list, tg.Semaphores.seen...)
		}
	}
	s.semaphored.Store(&list)
}

// semaphoresDue reports whether a probe with a semaphore was switched on or off since the last
// syncSemaphores. Any goroutine may call it.
func (s *Engine) semaphoresDue() bool {
	list := s.semaphored.Load()
	return list != nil && slices.ContainsFunc(*list, semaphored.switched)
}

// semaphoresAtTick raises and lowers semaphores of probes that were switched.
func (tg *Target) semaphoresAtTick(ctx context.Context) {
	if tg.IsMain() && slices.ContainsFunc(tg.Semaphores.seen, semaphored.switched) {
		if err := tg.comeBack(ctx); err != nil {
			tg.Engine.Logf("process %d: semaphores of statically defined probes: %v", tg.Proc.PID(), err)
			return
		}
		tg.syncSemaphores(ctx)
	}
}

// switched reports whether the probe was switched on or off since the last syncSemaphores.
func (x semaphored) switched() bool { return x.p.feed.disabled(x.p) != x.off }
