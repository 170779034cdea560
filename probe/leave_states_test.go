package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How the states of threads are tested in which kprobe leaves them
//
// A thread is led to a probe's site and then on by one instruction after another, up to
// where it is behind the patch: for each of these states the probe is taken out in each of
// the ways that there are, and the program must work on as if it had never been there.

// leavePlaces are places of leave_states.c, one of each kind of patch. CI leaves those out
// that are full: they are undone as others are. Breakpoints are none of them: StepOut, which
// leads the threads here, would take the trap of one for a signal of the program's.
var leavePlaces = []struct {
	place  string
	tactic plan.Tactic
	full   bool
}{
	{"padded+2", plan.ShortJump, false},
	{"holed+0xca", plan.ShortJump, false},
	{"punned+2", plan.ShortJump, false},
	{"window+2", plan.Window, false},
	{"single+2", plan.Single, true},
	{"four+2", plan.Pun, true},
	{"tail+0xe", plan.TailPad, true},
}

// leaveState is what a thread is in besides its place.
type leaveState int

const (
	plainly  leaveState = iota
	signaled            // a signal has been sent to it
	atGuard             // it stands at a guard, if it is in a displaced instruction
	trapped             // it has met that guard
	leaveStates
)

func (s leaveState) String() string {
	return [...]string{"plainly", "signaled", "at a guard", "trapped at a guard"}[s]
}

// TestLeaveStates takes probes out while a thread is in each state that it can be in.
func TestLeaveStates(t *testing.T) {
	prog := fixture.Build(t, "leave_states.c", "-O2")
	for _, c := range leavePlaces {
		if c.full && full(0, 1) == 0 {
			continue
		}
		t.Run(c.place, func(t *testing.T) {
			for _, way := range []string{"remove", "detach"} {
				sub, states := startSubject(t, prog), 0
				for state := range leaveStates {
					for k := 0; ; k += full(nextStep(k, state), 1) {
						at, more := leaveAt(t, sub, c.place, c.tactic, k, state, way)
						if s := endOf(sub.pid()); t.Failed() || strings.Contains(s, "signalled true") {
							t.Fatalf("%s, %v, after %d instructions: %s", way, state, at, s)
						}
						if !more {
							break
						}
						k = at
						states++
					}
				}
				if got := sub.work(); got != "done 0" {
					t.Errorf("%s: the program printed %q, want no result wrong", way, got)
				}
				sub.end()
				t.Logf("%s in %d states", way, states)
			}
		})
	}
}

// nextStep is how many instructions are left out where not all states are tested: none
// around the jumps.
func nextStep(k int, state leaveState) int {
	if k < 3 || state > signaled {
		return 1
	}
	return 15
}

// leaveAt takes a probe out while a thread is in a state, k instructions behind its site or
// where it is in that state next. There is no more where it is behind the patch by then.
func leaveAt(t *testing.T, sub *subject, place string, tactic plan.Tactic, k int, state leaveState, way string) (at int, more bool) {
	t.Helper()
	l := attach(t, sub.pid(), Options{}, "p:s "+place)
	ev := l.s.Events()[0]
	onTracer(t, l, func(tg *engine.Target) error {
		if err := tg.Proc.StopAll(t.Context()); err != nil {
			return err
		}
		left := false
		defer func() {
			if !left {
				_ = tg.Proc.ResumeAll()
			}
		}()
		th := tg.Proc.Threads()[0]
		site, err := siteOfTactic(tg, tactic)
		if err != nil {
			return err
		}
		if !th.StepOut(func(pc symbols.Addr) bool { return pc != site }, 1_000_000) {
			return fmt.Errorf("it never comes to %v", site)
		}
		ok := true
		for at = 0; ; at++ {
			if at >= k {
				if more, ok = leavesState(t, tg, th, state, at == 0); ok || !more {
					break
				}
			}
			// A stop for a signal may come before the instruction is executed.
			regs, err := th.Regs()
			if err != nil {
				return err
			}
			from := symbols.Addr(regs.Rip)
			if !th.StepOut(func(pc symbols.Addr) bool { return pc == from }, 8) {
				return fmt.Errorf("step %d, at %v: %s", at, from, threadStates(sub.pid()))
			}
		}
		switch {
		case !more:
			if at < 3 {
				regs, err := th.Regs()
				t.Errorf("%s, %v: the patch has %d instructions only: from %v the thread came to %#x (%v), signals pending: %s",
					way, state, at, site, regs.Rip, err, threadStates(sub.pid()))
			}
			return nil
		case way == "detach":
			left = true
			return l.s.engine.Leave(t.Context())
		}
		return l.s.Remove(t.Context(), ev)
	})
	if way != "detach" || !more {
		l.finish(sub.pid())
		return at, more
	}
	l.stop()
	<-l.done
	if err := l.s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	checkClean(t, sub.pid())
	return at, more
}

// leavesState brings a stopped thread into a state where it is. There is no more where it is
// behind the patch; first says that it is at the site.
func leavesState(t *testing.T, tg *engine.Target, th *tracee.Thread, state leaveState, first bool) (more, ok bool) {
	regs, err := th.Regs()
	if err != nil {
		t.Error(err)
		return false, false
	}
	pc := symbols.Addr(regs.Rip)
	st := tg.Patches.StageAt(pc)
	more = first || !st.None() || tg.InShared(pc) || tg.Patches.LongJump(pc) != nil
	switch {
	case !more || state == plainly:
		return more, more
	case state == signaled:
		if err := unix.Tgkill(th.Process().PID(), th.TID(), unix.SIGUSR1); err != nil {
			t.Error(err)
		}
		return true, true
	case st.None():
		return true, false
	}
	out, _, ok := st.InCopy(regs, tg.Proc)
	if !ok {
		return true, false
	}
	if _, is := tg.Patches.Guards[symbols.Addr(out.Rip)]; !is {
		return true, false
	}
	if err := th.SetRegs(out); err != nil {
		t.Error(err)
	}
	for _, met := th.Signal(); state == trapped && !met; _, met = th.Signal() {
		if err := errors.Join(tg.Proc.ResumeAll(), tg.Proc.StopAll(t.Context())); err != nil {
			t.Error(err)
			break
		}
	}
	return true, true
}
