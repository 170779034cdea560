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
// A program may set signal handlers of its own after kprobe came; a runtime that starts under
// kprobe always does. Such a handler replaces the fallback handler. If both processes of kprobe are
// killed then, the next breakpoint kills the program. So kprobe reads the program's actions again:
//
//	at a breakpoint  because the thread is stopped anyway; at most every fallbacksSoon, later
//	                 every fallbacksLate
//	at a tick        if /proc/PID/status shows other caught signals than before. It shows no
//	                 difference if the program replaces only the fallback handler's own action.
//	                 So the actions are also read without such a reason, at growing intervals
//
// A session must not wake the tracer's thread while nothing happens, so another goroutine reads
// /proc/PID/status.
const (
	fallbacksSoon  = 5 * time.Millisecond
	fallbacksLate  = time.Second
	fallbacksTick  = 100 * time.Millisecond // how often /proc/PID/status is read
	fallbacksAsk   = time.Second            // how often the tracer's thread checks at least
	fallbacksQuiet = 30 * time.Second       // the longest interval between reads without a reason
	// fallbacksPatience is how long reading all actions may take.
	fallbacksPatience = time.Second
)

// FallbackWatch says when a target's signal actions are read next.
type FallbackWatch struct {
	atStop     time.Time // the earliest time to read them at a breakpoint
	stopPause  time.Duration
	atTick     time.Time // the next time to read them without a reason
	tickPause  time.Duration
	caught     string                 // caughtSignals when the actions were last read
	toldFailed bool                   // it was logged that an action can't have a fallback handler
	laid       map[syscall.Signal]int // how often a fallback handler was set again
}

// Tell logs that a fallback handler was set in front of an action again: the first time, and then
// each time the count is a power of ten. A breakpoint in a thread that blocks its signal makes the
// kernel reset the action each time it is hit.
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

// WatchFallbacks does the work of each tick until ctx is done: it checks the targets' signal actions,
// whether their jumps can be built again, semaphores and watchpoints that were switched, and
// readers that wait for counters.
func (s *Engine) WatchFallbacks(ctx context.Context) {
	tick := time.NewTicker(fallbacksTick)
	defer tick.Stop()
	var due time.Time // when the tracer's thread must check next
	joined := uint64(0)
	caught := map[int]string{} // caughtSignals of the watched processes, by number
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

// stillCaught reports whether the caughtSignals of all processes in were are unchanged.
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
		// Try again soon, but spend at most an eighth of the time on it.
		w.tickPause = fallbacksTick
		w.atTick = now.Add(max(fallbacksTick, 8*time.Since(now)))
		return
	}
	w.caught = caughtSignals(tg.Proc.PID())
}

// fallbacksAtStop reads the actions, if it is time, while t is stopped at a breakpoint.
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

// LayFallbacksAgain sets the fallback handler again for each signal whose action the program has
// replaced, in front of the new action. t is a stopped thread or nil. It returns false if no thread
// can execute injected calls at the moment.
func (tg *Target) LayFallbacksAgain(t *tracee.Thread) bool {
	a, w := tg.Area, &tg.faults.watch
	// The time is limited so that other threads' stops don't wait long: it is tried again later.
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

// caughtSignals returns the lines of a process's status about ignored and caught signals and about
// seccomp, in which WatchFallbacks looks for changes; "" if the process is gone.
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
