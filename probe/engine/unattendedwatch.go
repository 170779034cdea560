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

// letGoOf is a process that is let go of, as anybody may look at it.
type letGoOf struct {
	proc  *tracee.Process
	at    symbols.Addr // of the memory file
	begin []byte
	ruled bool // it is known that rules of seccomp judge its system calls
}

// asLetGo is the target as it may be looked at from outside.
func (tg *Target) asLetGo() letGoOf {
	f := tg.Area.File
	ruled := tg.Params == nil || tg.Renewal.Filtered
	return letGoOf{tg.Proc, f.Addr(f.Layout.Header.Off), tg.unattended.begin, ruled}
}

// listLetGo lists the processes that are let go of.
func (s *Engine) listLetGo() {
	var list []letGoOf
	for _, tg := range s.Targets {
		if tg.unattended.letGo && tg.IsMain() && tg.Area != nil {
			list = append(list, tg.asLetGo())
		}
	}
	s.awayFrom.Store(&list)
}

// in reports whether a process, forked or it itself, has the memory that it was let go of
// with. The error is tracee.PeekOf's.
func (x letGoOf) in(pid int) (is bool, err error) {
	b := make([]byte, len(x.begin))
	err = tracee.PeekOf(pid, b, x.at)
	return err == nil && slices.Equal(b, x.begin), err
}

// there reports whether the process has the memory that it was let go of with.
func (x letGoOf) there() bool {
	b := make([]byte, len(x.begin))
	err := x.proc.Peek(b, x.at)
	return err == nil && slices.Equal(b, x.begin)
}

// rules reports whether the process has set rules of seccomp since, as its first thread
// tells: that is looked at often, as detours may make system calls until then.
func (x letGoOf) rules() bool {
	if x.ruled {
		return false
	}
	st, err := procfs.Process(x.proc.PID()).Status()
	return err == nil && st.Judged()
}

// WatchLetGo looks after processes that are let go of, and lets go of others, until ctx
// is done.
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

// lookAfterLetGo does what is due, and says when more may be.
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

// looksAgain says when the mappings of a process that is let go of are to be looked at
// next: sooner where a definition waits for a library.
func (tg *Target) looksAgain() time.Time {
	b := &tg.unattended
	if !tg.awaited.any() {
		return b.looked.Add(letGoMaps)
	}
	return b.looked.Add(min(max(letGoWaits, letGoWaitsShare*b.took), letGoMaps))
}

// seeLibraries does what the loader's breakpoint does for a process that is traced.
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

// noteLibraries notes whether files were mapped or unmapped while the process was let go
// of, and which there were before.
func (tg *Target) noteLibraries() {
	b := &tg.unattended
	before := tg.Space.Modules()
	if err := tg.refresh(); err != nil || b.moved {
		return // it is gone, or its mappings can't be read now; or it is known
	}
	if !slices.Equal(before, tg.Space.Modules()) {
		b.moved, b.before = true, before
	} else if !tg.textThere() {
		b.moved, b.before = true, nil
	}
}

// followLibraries does what is due as files were mapped or unmapped.
func (tg *Target) followLibraries(ctx context.Context) {
	b := &tg.unattended
	if !b.moved {
		return
	}
	before := b.before
	b.moved, b.before = false, nil
	tg.modulesMoved(ctx, before)
}

// seeFilters does what is done at a tick for a process that is traced: it has set rules of
// seccomp.
func (tg *Target) seeFilters(ctx context.Context) {
	if err := tg.comeBack(ctx); err != nil {
		tg.Engine.Logf("process %d has set rules of seccomp: %v", tg.Proc.PID(), err)
		return
	}
	tg.filtersAtTick()
}

// textThere reports whether of each file one jump is still there: it may have been
// unloaded, and loaded again at the same address.
func (tg *Target) textThere() bool {
	seen := map[*symbols.Module]bool{}
	for p := range tg.Placed {
		if m := p.Where.Module; m == nil || seen[m] || len(p.wants) == 0 {
			continue
		}
		q := tg.Patches.Covering(p.wants[0].Site.Addr, 1)
		if q == nil || !q.Armed || len(q.Plan.Writes) == 0 {
			continue
		}
		seen[p.Where.Module] = true
		if w := q.Plan.Writes[0]; !tg.Holds(symbols.Addr(w.At), w.Bytes) {
			return false
		}
	}
	return true
}
