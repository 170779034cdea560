package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/nets"
	"kprobe/probe/tracee"
)

// How the nets stay in place
//
// A program may set handlers of its own after kprobe came: a runtime that
// starts under kprobe always does. They take the net's place, and were both
// processes of kprobe killed then, a breakpoint would be the program's death.
// So the actions are looked at again:
//
//	at a breakpoint  the thread is stopped anyway; at most each netsSoon, later
//	                 each netsLate
//	now and then     /proc/PID/status tells which signals are caught: if that
//	                 has changed the actions are asked for. A program that
//	                 replaces just what a net answers doesn't show there; so
//	                 they are asked for without a reason, too, ever less often.
//
// Waking the tracer's thread for nothing is what an idle session can't afford:
// the file is read beside it.
const (
	netsSoon  = 5 * time.Millisecond
	netsLate  = time.Second
	netsTick  = 100 * time.Millisecond
	netsAsk   = time.Second // the tracer's thread looks at least so often
	netsQuiet = 30 * time.Second
	// netsPatience is how long one look may take.
	netsPatience = time.Second
)

// netWatch is when a target's actions are looked at next.
type netWatch struct {
	atStop     time.Time
	stopPause  time.Duration
	atTick     time.Time
	tickPause  time.Duration
	caught     string // SigIgn and SigCgt when the actions were asked for last
	toldFailed bool
	laid       map[syscall.Signal]int // how often an action was laid under a net again
}

// tell logs that an action was laid under a net again: the first time, and then
// whenever it has happened ten times as often. Breakpoints where a signal is
// blocked have the kernel take the net away each time they are hit.
func (w *netWatch) tell(tg *target, sig syscall.Signal) {
	if w.laid == nil {
		w.laid = map[syscall.Signal]int{}
	}
	w.laid[sig]++
	switch n := w.laid[sig]; {
	case n == 1:
		tg.s.logf("process %d: the action of %s was laid under the net again", tg.proc.PID(), unix.SignalName(sig))
	case powerOfTen(n):
		tg.s.logf("process %d: the action of %s was laid under the net %d times by now", tg.proc.PID(), unix.SignalName(sig), n)
	}
}

func powerOfTen(n int) bool {
	for n > 1 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}

// watchNets looks at the targets' actions, at what their detours can read by now,
// and at what other terminals wait for, until ctx is done.
func (s *Session) watchNets(ctx context.Context) {
	tick := time.NewTicker(netsTick)
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
		s.order.tick()
		now := s.order.joined.Load()
		if now == joined && time.Now().Before(due) && stillCaught(caught) {
			continue
		}
		joined = now
		err := s.tracer.Do(func() error {
			clear(caught)
			due = time.Now().Add(netsAsk)
			for pid, tg := range s.targets {
				tg.netsAtTick()
				tg.renewAtTick()
				if tg.watched() && tg.netWatch.caught != "" {
					caught[pid] = tg.netWatch.caught
					due = earlier(due, tg.netWatch.atTick)
				}
				if tg.renewable() {
					due = earlier(due, tg.renewal.at)
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

// watched reports whether the target has nets that must stay in place.
func (tg *target) watched() bool {
	return tg.area != nil && !tg.borrowed && !tg.dying && !tg.s.closed
}

func (tg *target) netsAtTick() {
	if !tg.watched() {
		return
	}
	w := &tg.netWatch
	now := time.Now()
	caught := caughtSignals(tg.proc.PID())
	switch {
	case caught == "":
		return // it has ended
	case caught != w.caught && w.caught != "":
		w.stopPause, w.tickPause = netsSoon, netsTick
	case now.Before(w.atTick):
		return
	}
	w.caught = caught
	w.tickPause = min(max(2*w.tickPause, netsTick), netsQuiet)
	w.atTick = now.Add(w.tickPause)
	if !tg.layNetsAgain(nil) {
		// Soon again, but not so that little else is done.
		w.tickPause = netsTick
		w.atTick = now.Add(max(netsTick, 8*time.Since(now)))
		return
	}
	w.caught = caughtSignals(tg.proc.PID())
}

// netsAtStop looks at the actions while t is stopped at a breakpoint.
func (tg *target) netsAtStop(t *tracee.Thread) {
	w := &tg.netWatch
	now := time.Now()
	if now.Before(w.atStop) || tg.area == nil || tg.borrowed || tg.dying || t.Process() != tg.proc {
		return
	}
	w.stopPause = min(max(2*w.stopPause, netsSoon), netsLate)
	w.atStop = now.Add(w.stopPause)
	tg.layNetsAgain(t)
}

// layNetsAgain puts a net in front of each action that has taken its place. It
// reports whether it could: no thread may be fit to be asked at the moment.
func (tg *target) layNetsAgain(t *tracee.Thread) bool {
	a, w := tg.area, &tg.netWatch
	// There is always a next time: other threads' events are not to wait long.
	ctx, cancel := context.WithTimeout(tg.s.run, netsPatience)
	defer cancel()
	if fresh := tg.faultsCaught(); len(fresh) > 0 {
		err := tg.catchSignals(ctx, t, fresh)
		if errors.Is(err, tracee.ErrNoThread) {
			return false
		}
		for sig := range fresh {
			if _, ok := tg.actions[sig]; ok {
				w.stopPause, w.tickPause = netsSoon, netsTick
				w.tell(tg, sig)
			}
		}
		if err != nil && !errors.Is(err, tracee.ErrGone) {
			tg.s.logf("process %d: faults are not answered by a net: %v", tg.proc.PID(), err)
		}
	}
	for sig := range a.nets.Signals() {
		changed, err := a.catch(ctx, t, sig)
		if changed {
			w.stopPause, w.tickPause = netsSoon, netsTick
			w.tell(tg, sig)
		}
		if err == nil && changed {
			if _, ok := tg.actions[sig]; ok {
				tg.actions[sig], err = a.proc.Sigaction(ctx, t, sig)
			}
		}
		if errors.Is(err, tracee.ErrNoThread) {
			return false
		}
		if err != nil && !errors.Is(err, tracee.ErrGone) && !w.toldFailed {
			w.toldFailed = errors.Is(err, nets.ErrNone)
			tg.s.logf("process %d: %s is not answered by a net: %v", tg.proc.PID(), unix.SignalName(sig), err)
		}
	}
	return true
}

// caughtSignals gives what /proc/PID/status says of ignored and caught
// signals, "" of a process that is gone.
func caughtSignals(pid int) string {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/status", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err != nil && err != unix.EINTR {
			return ""
		}
		if err == nil && n == 0 {
			break
		}
		b = slices.Grow(b[:len(b)+max(n, 0)], 1024)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "SigIgn:") || strings.HasPrefix(line, "SigCgt:") {
			out.WriteString(line)
		}
	}
	return out.String()
}
