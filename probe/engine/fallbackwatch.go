package engine

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/fallbacks"
	"kprobe/probe/tracee"
)

// How the fallback handlers stay in place
//
// A program may set handlers of its own after kprobe came; a runtime that starts under kprobe
// always does. They replace the fallback handler, and if both processes of kprobe were killed
// then, a breakpoint would be the program's death. So the actions are checked again:
//
//	at a breakpoint  the thread is stopped anyway; at most every fallbacksSoon, later every
//	                 fallbacksLate
//	now and then     /proc/PID/status tells which signals are caught: if that has changed, the
//	                 actions are read. A program that replaces only the fallback handler's
//	                 action doesn't show there. So they are also read without a reason,
//	                 less and less often.
//
// An idle session can't afford to wake the tracer's thread for nothing: another goroutine reads
// the file.
const (
	fallbacksSoon  = 5 * time.Millisecond
	fallbacksLate  = time.Second
	fallbacksTick  = 100 * time.Millisecond
	fallbacksAsk   = time.Second // the tracer's thread looks at least so often
	fallbacksQuiet = 30 * time.Second
	// fallbacksPatience is how long one look may take.
	fallbacksPatience = time.Second
)

// FallbackWatch is when a target's actions are looked at next.
type FallbackWatch struct {
	atStop     time.Time
	stopPause  time.Duration
	atTick     time.Time
	tickPause  time.Duration
	caught     string // SigIgn and SigCgt when the actions were asked for last
	toldFailed bool
	laid       map[syscall.Signal]int // how often an action was laid under a fallback handler again
}

// Tell logs that an action was laid under a fallback handler again: the first time, and then
// whenever it has happened ten times as often. Breakpoints where a signal is
// blocked have the kernel take the fallback handler away each time they are hit.
func (w *FallbackWatch) Tell(tg *Target, sig syscall.Signal) {
	if w.laid == nil {
		w.laid = map[syscall.Signal]int{}
	}
	w.laid[sig]++
	switch n := w.laid[sig]; {
	case n == 1:
		tg.Engine.Logf("process %d: the action of %s was laid under the fallback handler again", tg.Proc.PID(), unix.SignalName(sig))
	case powerOfTen(n):
		tg.Engine.Logf("process %d: the action of %s was laid under the fallback handler %d times by now", tg.Proc.PID(), unix.SignalName(sig), n)
	}
}

func powerOfTen(n int) bool {
	for n > 1 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}

// WatchFallbacks looks at the targets' actions, at what their detours can read by now,
// and at what other terminals wait for, until ctx is done.
func (s *Engine) WatchFallbacks(ctx context.Context) {
	tick := time.NewTicker(fallbacksTick)
	defer tick.Stop()
	var due time.Time // when the tracer's thread is to look
	joined := uint64(0)
	caught := map[int]string{} // of the processes that it looks after
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.Out.Tick()
		now := s.Out.Joined()
		if now == joined && time.Now().Before(due) && stillCaught(caught) && !s.semaphoresDue() && !s.watchesDue() {
			continue
		}
		joined = now
		err := s.Tracer.Do(func() error {
			clear(caught)
			due = time.Now().Add(fallbacksAsk)
			for pid, tg := range s.Targets {
				tg.fallbacksAtTick()
				tg.renewAtTick()
				tg.semaphoresAtTick(context.WithoutCancel(ctx))
				tg.watchesAtTick(context.WithoutCancel(ctx))
				if tg.watched() && tg.faults.watch.caught != "" {
					caught[pid] = tg.faults.watch.caught
					due = earlier(due, tg.faults.watch.atTick)
				}
				if tg.renewable() {
					due = earlier(due, tg.Renewal.at)
				}
			}
			return nil
		})
		if errors.Is(err, tracee.ErrClosed) {
			return
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// stillCaught reports whether the processes catch the signals that they did.
func stillCaught(were map[int]string) bool {
	for pid, was := range were {
		if caughtSignals(pid) != was {
			return false
		}
	}
	return true
}

// watched reports whether the target has fallback handlers that must stay in place.
func (tg *Target) watched() bool {
	return tg.Area != nil && tg.IsMain() && !tg.dying && !tg.Engine.Closed && !tg.unattended.letGo
}

func (tg *Target) fallbacksAtTick() {
	if !tg.watched() {
		return
	}
	w := &tg.faults.watch
	now := time.Now()
	caught := caughtSignals(tg.Proc.PID())
	switch {
	case caught == "":
		return // it has ended
	case caught != w.caught && w.caught != "":
		w.stopPause, w.tickPause = fallbacksSoon, fallbacksTick
	case now.Before(w.atTick):
		return
	}
	w.caught = caught
	tg.faults.noteIgnored(caught)
	w.tickPause = min(max(2*w.tickPause, fallbacksTick), fallbacksQuiet)
	w.atTick = now.Add(w.tickPause)
	if !tg.LayFallbacksAgain(nil) {
		// Soon again, but not so that little else is done.
		w.tickPause = fallbacksTick
		w.atTick = now.Add(max(fallbacksTick, 8*time.Since(now)))
		return
	}
	w.caught = caughtSignals(tg.Proc.PID())
}

// fallbacksAtStop looks at the actions while t is stopped at a breakpoint.
func (tg *Target) fallbacksAtStop(t *tracee.Thread) {
	w := &tg.faults.watch
	now := time.Now()
	if now.Before(w.atStop) || tg.Area == nil || !tg.IsMain() || tg.dying || t.Process() != tg.Proc {
		return
	}
	w.stopPause = min(max(2*w.stopPause, fallbacksSoon), fallbacksLate)
	w.atStop = now.Add(w.stopPause)
	tg.LayFallbacksAgain(t)
}

// LayFallbacksAgain puts a fallback handler in front of each action that has taken its place. It
// reports whether it could: no thread may be fit to be asked at the moment.
func (tg *Target) LayFallbacksAgain(t *tracee.Thread) bool {
	a, w := tg.Area, &tg.faults.watch
	// There is always a next time: other threads' events are not to wait long.
	ctx, cancel := context.WithTimeout(tg.Engine.Run, fallbacksPatience)
	defer cancel()
	if fresh := tg.faults.unanswered(tg.Proc.PID()); len(fresh) > 0 {
		err := tg.faults.answer(ctx, a, t, fresh)
		if errors.Is(err, tracee.ErrNoThread) {
			return false
		}
		for sig := range fresh {
			if _, ok := tg.faults.actions[sig]; ok {
				w.stopPause, w.tickPause = fallbacksSoon, fallbacksTick
				w.Tell(tg, sig)
			}
		}
		if err != nil && !errors.Is(err, tracee.ErrGone) {
			tg.Engine.Logf("process %d: faults are not answered by a fallback handler: %v", tg.Proc.PID(), err)
		}
	}
	for sig := range a.Fallbacks.Signals() {
		changed, err := a.Catch(ctx, t, sig)
		if changed {
			w.stopPause, w.tickPause = fallbacksSoon, fallbacksTick
			w.Tell(tg, sig)
		}
		if err == nil && changed {
			if _, ok := tg.faults.actions[sig]; ok {
				tg.faults.actions[sig], err = a.Proc.Sigaction(ctx, t, sig)
			}
		}
		if errors.Is(err, tracee.ErrNoThread) {
			return false
		}
		if err != nil && !errors.Is(err, tracee.ErrGone) && !w.toldFailed {
			w.toldFailed = errors.Is(err, fallbacks.ErrNone)
			tg.Engine.Logf("process %d: %s is not answered by a fallback handler: %v", tg.Proc.PID(), unix.SignalName(sig), err)
		}
	}
	return true
}

// caughtSignals gives what a process's status says of ignored and caught signals, and
// of seccomp, of which a change is to be noticed; "" of a process that is gone.
func caughtSignals(pid int) string {
	st, err := procfs.Process(pid).Status()
	if err != nil {
		return ""
	}
	var out strings.Builder
	for _, name := range [...]string{"NoNewPrivs", "Seccomp", "SigIgn", "SigCgt"} {
		out.WriteString(name + ":\t" + st.Field(name) + "\n")
	}
	return out.String()
}
