package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// comeBack seizes the process's threads again if it was let go of, and sees that it can be
// changed. Errors are those of tracee.Process.Rejoin, and it is let go of still; and
// errInterrupted, and it is traced.
func (tg *Target) comeBack(ctx context.Context) error {
	tg = tg.main
	came := tg.unattended.letGo
	if came {
		if err := tg.seizeAgain(ctx); err != nil {
			return err
		}
		tg.postponeLetGo()
		tg.LayFallbacksAgain(nil)
		if err := tg.Proc.GuardTrap(ctx, nil); err != nil {
			return err
		}
		tg.noteLibraries()
	}
	tg.takeForked(ctx)
	if err := tg.settle(ctx); err != nil {
		return err
	}
	if came {
		tg.watchLibraries(ctx)
	}
	tg.followLibraries(ctx)
	return nil
}

// seizeAgain is comeBack of who changes nothing, or takes everything out.
func (tg *Target) seizeAgain(ctx context.Context) error {
	if err := tg.Proc.Rejoin(ctx); err != nil {
		return err
	}
	tg.unattended.letGo, tg.unattended.open = false, true
	memory.StoreTraced(tg.Area.File, memory.TracedFor, "its probes change")
	tg.Engine.listLetGo()
	tg.TakeSharers()
	for _, t := range tg.Proc.Threads() {
		tg.noteComm(t)
	}
	tg.births.used = false
	tg.SetSequences()
	return nil
}

// ErrInterrupted says that a handler of a signal will return into a detour.
var ErrInterrupted = errors.New("a handler of a signal has interrupted a probe in it, and doesn't return: try again")

// settle waits, before a change of a process that was seized again, until no handler of a
// signal will return into code of kprobe's, and no thread is in a fallback handler: signals
// are held since, so none will be again. The error is errInterrupted.
func (tg *Target) settle(ctx context.Context) error {
	if !tg.unattended.open {
		return nil
	}
	for length := range area.Moments() {
		inside := false
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			inside = slices.ContainsFunc(stopped, tg.Area.Interrupted)
			return nil
		})
		if err := tracee.IgnoreLate(err); err != nil {
			return err
		}
		if !inside {
			tg.unattended.open = false
			return nil
		}
		if _, err := away(tg.Engine, func() (struct{}, error) { time.Sleep(length); return struct{}{}, nil }); err != nil {
			return err
		}
		if err := tg.goneError(); err != nil {
			return err
		}
	}
	return ErrInterrupted
}

// comeBackAll is comeBack for every process.
func (s *Engine) comeBackAll(ctx context.Context) error {
	for pid, tg := range s.Targets {
		if !tg.IsMain() {
			continue
		}
		if tg.unattended.letGo && !tg.Proc.Ended() && !tg.asLetGo().there() {
			s.executedMeanwhile(ctx, tg)
			continue
		}
		if err := tg.comeBack(ctx); err != nil && !errors.Is(err, tracee.ErrGone) {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}

// Changing runs fn on the tracer's thread with all processes traced.
func (s *Engine) Changing(ctx context.Context, fn func() error) error {
	return s.Tracer.Do(func() error {
		if s.Closed {
			return ErrClosed
		}
		if err := s.comeBackAll(ctx); err != nil {
			return err
		}
		return fn()
	})
}

// executedMeanwhile arms the definitions in a program that a process has executed while it
// was let go of.
func (s *Engine) executedMeanwhile(ctx context.Context, old *Target) {
	p := old.Proc
	var b [1]byte
	if p.Ended() || errors.Is(p.Peek(b[:], old.asLetGo().at), unix.ESRCH) {
		return // it ends, or has: that is seen at a later look
	}
	p.Replaced()
	if err := p.Rejoin(ctx); err != nil {
		s.Warnf("process %d executed a program, and isn't probed any more: %v", p.PID(), err)
		_ = p.Forget()
		s.Owner.Handler().Exited(p, 0)
		s.listLetGo()
		return
	}
	old.unattended.letGo = false
	old.leaveForked(ctx)
	old.LeaveSpace()
	delete(s.Targets, p.PID())
	s.listLetGo()
	if err := s.Adopt(p, nil); err != nil {
		s.SayUnarmed(p.PID(), err)
		s.LetGo(p)
		return
	}
	s.Logf("process %d executed a program: its probes are put in while it runs", p.PID())
	tg := s.Targets[p.PID()]
	if err := tg.ArmDefs(ctx, s.Events.Definitions()); err != nil {
		s.SayUnarmed(p.PID(), tg.OrExecuted(ctx, err))
	}
}

// SayUnarmed says why the definitions aren't armed in a program that a process has executed.
// It is no warning where the process has ended, or has executed another program: its end is
// seen at the next look, and the next program is armed.
func (s *Engine) SayUnarmed(pid int, err error) {
	say := s.Warnf
	if again := new(ExecutedError); errors.Is(err, tracee.ErrGone) || errors.Is(err, symbols.ErrGone) || errors.As(err, &again) {
		say = s.Logf
	}
	say("after exec of %d: %v", pid, err)
}

// SeizeForEnd seizes what was let go of, as a run ends: what is in detours then is waited for.
func (s *Engine) SeizeForEnd(ctx context.Context) {
	for _, tg := range s.Targets {
		if tg.IsMain() && tg.unattended.letGo && !tg.Proc.Ended() {
			if err := tg.seizeAgain(ctx); err != nil {
				s.Logf("%v", err)
			}
		}
	}
}

// Times of leaving a process that another tracer holds.
const (
	holderLook = 50 * time.Millisecond
	holderTold = time.Second
)

// endLetGo has a target that was let go of once be ready to be left: traced, with its
// text restored, and, as far as that comes, no handler of a signal about to return into
// code of kprobe's. Where another tracer holds the process it waits for that one, until
// ctx is done; the probes are switched off then and stay, as after a kill. clean is to be
// called once the process is left.
func (tg *Target) endLetGo(ctx context.Context) (clean func(), err error) {
	for begun, told := time.Now(), false; tg.unattended.letGo; {
		err := tg.seizeAgain(ctx)
		if err == nil {
			break
		}
		var traced *tracee.TracedError
		switch {
		case !errors.As(err, &traced):
			return nil, errors.Join(err, tg.abandonArea())
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w; the probes are switched off, and stay until kprobe traces the process again", errors.Join(err, tg.abandonArea()))
		case !told && time.Since(begun) >= holderTold:
			told = true
			tg.Engine.Warnf("process %d is traced by %s (%d): its probes are taken out when that one lets go of it", tg.Proc.PID(), traced.Comm, traced.By)
		}
		time.Sleep(holderLook)
	}
	tg.Feed.over.Store(true)
	tg.Area.Outside = tg.outside
	tg.unattended.forked.Note()
	if err := tg.Area.Drain(ctx); err != nil {
		return nil, err
	}
	return func() { tg.cleanForked(ctx) }, nil
}

// cleanForked takes the probes out of what the process has made, as noted before.
func (tg *Target) cleanForked(ctx context.Context) {
	own := func(pid int) bool { return tg.Engine.Targets[pid] != nil }
	if err := tg.unattended.forked.Clean(ctx, own); err != nil {
		tg.Engine.Warnf("what process %d has made has probes: %v", tg.Proc.PID(), err)
	}
}

// abandonArea leaves the probes in the process, switched off, for whoever recovers them.
func (tg *Target) abandonArea() error {
	tg.Feed.over.Store(true)
	tg.Feed.DisableAll()
	a := tg.Area
	tg.Area = nil
	return errors.Join(a.Abandon(), tg.Proc.Forget())
}
