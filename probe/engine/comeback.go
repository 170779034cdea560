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

// comeBack makes the process ready for a change: it seizes the threads again if the process was let
// go of, and waits until no signal handler will return into kprobe's code. After an error of
// tracee.Process.Rejoin the process is still let go of. After ErrInterrupted it is traced.
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

// seizeAgain seizes the threads again and no more. It is enough if nothing changes or everything is
// removed.
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

// ErrInterrupted says that a signal handler will return into a detour, so no probe can be changed
// now.
var ErrInterrupted = errors.New("a handler of a signal has interrupted a probe in it, and doesn't return: try again")

// settle waits until no signal handler will return into kprobe's code, and no thread is in a
// fallback handler. It is needed before a change of a process that was seized again. Signals are
// held since then, so this stays true. The error is ErrInterrupted if it takes too long.
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

// Changing runs fn on the tracer's thread, with all processes traced and ready for a change. The
// error is ErrClosed if the session is closed.
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
		return // it is ending or has ended, which a later check notices
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

// SayUnarmed reports why the definitions aren't armed in a program that a process has executed. It
// only logs it if the process has ended or executed another program: the end is noticed at the next
// check, and the other program is armed.
func (s *Engine) SayUnarmed(pid int, err error) {
	say := s.Warnf
	if again := new(ExecutedError); errors.Is(err, tracee.ErrGone) || errors.Is(err, symbols.ErrGone) || errors.As(err, &again) {
		say = s.Logf
	}
	say("after exec of %d: %v", pid, err)
}

// SeizeForEnd seizes the processes that are let go of when a run ends, so that the end can wait for
// threads in detours (Quiesce).
func (s *Engine) SeizeForEnd(ctx context.Context) {
	for _, tg := range s.Targets {
		if tg.IsMain() && tg.unattended.letGo && !tg.Proc.Ended() {
			if err := tg.seizeAgain(ctx); err != nil {
				s.Logf("%v", err)
			}
		}
	}
}

// Times for leaving a process that another tracer traces.
const (
	holderLook = 50 * time.Millisecond // how often seizing is tried
	holderTold = time.Second           // when the user is told why it takes so long
)

// endLetGo prepares a target that was let go of once to be left: it is traced again, its text is
// restored, and, if that happens in time, no signal handler will return into kprobe's code. If
// another tracer traces the process, endLetGo waits for it until ctx is done. Then the probes are
// switched off and stay, as after a kill. The caller must call clean after the process is left.
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

// cleanForked removes the probes from the process's forked children that were noted before.
func (tg *Target) cleanForked(ctx context.Context) {
	own := func(pid int) bool { return tg.Engine.Targets[pid] != nil }
	if err := tg.unattended.forked.Clean(ctx, own); err != nil {
		tg.Engine.Warnf("what process %d has made has probes: %v", tg.Proc.PID(), err)
	}
}

// abandonArea switches the probes off and leaves them in the process, for recovery.
func (tg *Target) abandonArea() error {
	tg.Feed.over.Store(true)
	tg.Feed.DisableAll()
	a := tg.Area
	tg.Area = nil
	return errors.Join(a.Abandon(), tg.Proc.Forget())
}
