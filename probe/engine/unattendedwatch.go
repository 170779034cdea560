package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"kprobe/internal/procfs"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// letGoOf is what is needed to check a process that is let go of. Any goroutine may use it.
type letGoOf struct {
	proc  *tracee.Process
	at    symbols.Addr // where the memory file is mapped
	begin []byte       // the first bytes of the memory file
	ruled bool         // seccomp rules are known already, or don't matter
}

// asLetGo is the target's letGoOf.
func (tg *Target) asLetGo() letGoOf {
	f := tg.Area.File
	ruled := tg.Params == nil || tg.Renewal.Filtered
	return letGoOf{tg.Proc, f.Addr(f.Layout.Header.Off), tg.unattended.begin, ruled}
}

// listLetGo publishes the list of processes that are let go of, for WatchLetGo.
func (s *Engine) listLetGo() {
	var list []letGoOf
	for _, tg := range s.Targets {
		if tg.unattended.letGo && tg.IsMain() && tg.Area != nil {
			list = append(list, tg.asLetGo())
		}
	}
	s.awayFrom.Store(&list)
}

// in reports whether process pid, which is the process itself or a forked one, still has the memory
// that the process had when it was let go of. The error is that of tracee.PeekOf.
func (x letGoOf) in(pid int) (is bool, err error) {
	b := make([]byte, len(x.begin))
	err = tracee.PeekOf(pid, b, x.at)
	return err == nil && slices.Equal(b, x.begin), err
}

// there reports whether the process still has the memory that it had when it was let go of.
func (x letGoOf) there() bool {
	b := make([]byte, len(x.begin))
	err := x.proc.Peek(b, x.at)
	return err == nil && slices.Equal(b, x.begin)
}

// rules reports whether the process has set seccomp rules since, by the status of its main thread.
// It is asked at each tick, because detours make system calls until the session reacts.
func (x letGoOf) rules() bool {
	if x.ruled {
		return false
	}
	st, err := procfs.Process(x.proc.PID()).Status()
	return err == nil && st.Judged()
}

// WatchLetGo checks processes that are let go of, and lets go of others that need no tracer any
// more, until ctx is done.
func (s *Engine) WatchLetGo(ctx context.Context) {
	if !s.LetsGo {
		return
	}
	tick := time.NewTicker(letGoTick)
	defer tick.Stop()
	due := time.Time{}
	for {
		changed := false
		if list := s.awayFrom.Load(); list != nil {
			changed = slices.ContainsFunc(*list, func(x letGoOf) bool { return !x.there() || x.rules() })
		}
		if now := time.Now(); changed || now.After(due) {
			err := s.Tracer.Do(func() error {
				due = s.lookAfterLetGo(context.WithoutCancel(ctx))
				return nil
			})
			if errors.Is(err, tracee.ErrClosed) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lookAfterLetGo does what is due now for each target. due is when it must be called again.
func (s *Engine) lookAfterLetGo(ctx context.Context) (due time.Time) {
	due = time.Now().Add(letGoMaps)
	for _, tg := range s.Targets {
		if next := tg.watchForks(ctx); next.Before(due) && !next.IsZero() {
			due = next
		}
		if s.Closed || s.Stopping || !tg.IsMain() || tg.Area == nil {
			continue
		}
		b := &tg.unattended
		switch {
		case !b.letGo:
			tg.tryLetGo(ctx)
		case tg.Proc.Ended():
			status := tg.Proc.EndStatus()
			tg.leaveForked(ctx)
			_ = tg.Proc.Forget() // fails only once the session is closed
			s.Owner.Handler().Exited(tg.Proc, status)
			s.listLetGo()
		case !tg.asLetGo().there():
			s.executedMeanwhile(ctx, tg)
		case time.Since(b.judged) >= letGoMaps && tg.asLetGo().rules():
			b.judged = time.Now()
			tg.seeFilters(ctx)
		case !time.Now().Before(tg.looksAgain()):
			tg.seeLibraries(ctx)
			if tg.Params != nil && !tg.Renewal.Filtered && tracee.Filtered(tg.Proc.PID()) {
				tg.seeFilters(ctx)
			}
		}
		next := b.next
		if b.letGo {
			next = tg.looksAgain()
		}
		if next.Before(due) {
			due = next
		}
	}
	return due
}

// looksAgain is when the mappings of a process that is let go of are compared next: sooner if a
// definition waits for a library.
func (tg *Target) looksAgain() time.Time {
	b := &tg.unattended
	if !tg.awaited.any() {
		return b.looked.Add(letGoMaps)
	}
	return b.looked.Add(min(max(letGoWaits, letGoWaitsShare*b.took), letGoMaps))
}

// seeLibraries notices loaded and unloaded libraries, as the loader's breakpoint does in a traced
// process.
func (tg *Target) seeLibraries(ctx context.Context) {
	b := &tg.unattended
	b.looked = time.Now()
	if b.loader.State != 0 && !b.loader.Whole(tg.Proc) {
		return // something is being loaded
	}
	tg.noteLibraries()
	b.took = time.Since(b.looked)
	if !b.moved {
		return
	}
	if err := tg.comeBack(ctx); err != nil {
		tg.Engine.Logf("process %d has loaded or unloaded libraries: %v", tg.Proc.PID(), err)
	}
}

// noteLibraries notes whether files were mapped or unmapped while the process was let go of, and
// which modules it had before.
func (tg *Target) noteLibraries() {
	b := &tg.unattended
	before := tg.Space.Modules()
	if err := tg.refresh(); err != nil || b.moved {
		return // it is gone, its mappings can't be read now, or the change is noted already
	}
	if !slices.Equal(before, tg.Space.Modules()) {
		b.moved, b.before = true, before
	} else if !tg.textThere() {
		b.moved, b.before = true, nil
	}
}

// followLibraries reacts to files that were mapped or unmapped (modulesMoved), once.
func (tg *Target) followLibraries(ctx context.Context) {
	b := &tg.unattended
	if !b.moved {
		return
	}
	before := b.before
	b.moved, b.before = false, nil
	tg.modulesMoved(ctx, before)
}

// seeFilters traces a process again that has set seccomp rules, and reacts to them as for a traced
// process (filtersAtTick).
func (tg *Target) seeFilters(ctx context.Context) {
	if err := tg.comeBack(ctx); err != nil {
		tg.Engine.Logf("process %d has set rules of seccomp: %v", tg.Proc.PID(), err)
		return
	}
	tg.filtersAtTick()
}

// textThere reports whether the text of each probed file still has a jump of kprobe's, by one jump
// of each. A file may have been unloaded and loaded again at the same address.
func (tg *Target) textThere() bool {
	seen := map[*symbols.Module]bool{}
	for p := range tg.Placed {
		m := p.Where.Module
		if m == nil || seen[m] {
			continue
		}
		var q *Patch
		for w := range p.wants {
			q = tg.Patches.Covering(w.Site.Addr, 1)
			break
		}
		if q == nil || !q.Armed {
			continue
		}
		seen[m] = true
		if !tg.hasJump(q) {
			return false
		}
	}
	return true
}
