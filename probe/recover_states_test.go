package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// TestHazardP52 recovers a program whose tracer is gone while a thread is in each state
// that it can be in: stopped there by job control, or interrupted there by a signal whose
// handler is still to return. Where it is in kprobe's own code that takes a while.
func TestHazardP52(t *testing.T) {
	prog := fixture.Build(t, "leave_states.c", "-O2")
	for _, c := range leavePlaces {
		most := full(-1, 1_000)
		switch c.tactic {
		case plan.ShortJump:
			most = max(most, 1) // at the short jump, and at the long one
		case plan.Window:
			most = max(most, 0)
		}
		if most < 0 {
			continue
		}
		t.Run(c.place, func(t *testing.T) {
			sub, states := startSubject(t, prog), 0
			for _, interrupted := range []bool{false, true} {
				for k := 0; k <= most; k++ {
					more := recoverAt(t, sub, c.place, k, interrupted)
					if s := endOf(sub.pid()); t.Failed() || strings.Contains(s, "signalled true") {
						t.Fatalf("interrupted: %v, after %d instructions: %s", interrupted, k, s)
					}
					if !more {
						break
					}
					states++
				}
			}
			if got := sub.work(); got != "done 0" {
				t.Errorf("the program printed %q, want no result wrong", got)
			}
			sub.end()
			t.Logf("%d states", states)
		})
	}
}

// recoverAt leaves a probe with a thread k instructions behind its site, and recovers. There
// is no more where the thread is behind the patch by then.
func recoverAt(t *testing.T, sub *subject, place string, k int, interrupted bool) (more bool) {
	t.Helper()
	pid := sub.pid()
	l := attach(t, pid, Options{}, "p:s "+place)
	var site, long symbols.Addr
	onTracer(t, l, func(tg *engine.Target) error {
		site, long = onlySite(tg)
		return nil
	})
	l.stop()
	<-l.done
	failing(l.s.engine.Tracer, 0, true) // as good as killed
	if err := l.s.Close(t.Context()); !errors.Is(err, errTest) {
		t.Fatalf("close: %v", err)
	}
	lives(t, pid)
	more = steppedTo(t, pid, site, long, k, interrupted)
	if interrupted && more {
		if !waitUntil(func() bool { return inSyscall(pid, pause) }) {
			t.Fatalf("the handler doesn't wait: %s", threadStates(pid))
		}
	}
	if _, err := Recover(t.Context(), []int{pid}); err != nil {
		t.Errorf("recover: %v", err)
	}
	switch {
	case more && interrupted:
		if err := unix.Kill(pid, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if !waitUntil(func() bool { return !inSyscall(pid, pause) }) {
			t.Fatalf("the handler doesn't return: %s", threadStates(pid))
		}
	case more:
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	lives(t, pid)
	recovered(t, pid)
	return more
}

// pause is the call in which the handler of leave_states.c waits, as /proc has it.
const pause = "34 "

// steppedTo has a process of one thread, which nobody traces, execute k instructions
// from an address on, by which it must come all the time, and leaves it stopped there, or
// with SIGUSR2. There is no more where it is in no code of kprobe's then.
func steppedTo(t *testing.T, pid int, at, long symbols.Addr, k int, signal bool) (more bool) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // whoever attaches is the tracer
		defer runtime.UnlockOSThread()
		done <- func() (err error) {
			if err := attachRaw(pid); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, unix.PtraceDetach(pid)) }()
			regs, err := stepRaw(pid, 1_000_000, func(rip uint64) bool { return rip == uint64(at) })
			n := 0
			if err == nil && k > 0 {
				regs, err = stepRaw(pid, k+2, func(uint64) bool { n++; return n > k })
			}
			if err != nil {
				return err
			}
			maps, err := symbols.ReadMaps(pid)
			if err != nil {
				return err
			}
			more = k == 0 || regs.Rip == uint64(long)
			for _, m := range maps {
				more = more || m.Path == "" && m.Exec && symbols.Addr(regs.Rip) >= m.Start && symbols.Addr(regs.Rip) < m.End
			}
			switch {
			case !more:
				return nil
			case signal:
				return unix.Kill(pid, unix.SIGUSR2)
			}
			return unix.Kill(pid, unix.SIGSTOP)
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if more && !signal && !waitUntil(func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return bytes.Contains(b, []byte("State:\tT (stopped)")) && !traced(pid)
	}) {
		t.Fatalf("it isn't stopped: %s", threadStates(pid))
	}
	return more
}

func waitRaw(pid int) error {
	var status unix.WaitStatus
	_, err := unix.Wait4(pid, &status, unix.WALL, nil)
	if err == nil && !status.Stopped() {
		err = fmt.Errorf("it ended with %#x", uint32(status))
	}
	return err
}

func attachRaw(pid int) error {
	return errors.Join(unix.PtraceSeize(pid), unix.PtraceInterrupt(pid), waitRaw(pid))
}

// stepRaw steps until there is what is looked for, most instructions at most.
func stepRaw(pid, most int, there func(rip uint64) bool) (regs unix.PtraceRegs, err error) {
	for range most {
		if err := unix.PtraceGetRegs(pid, &regs); err != nil {
			return regs, err
		}
		if there(regs.Rip) {
			return regs, nil
		}
		if err := errors.Join(unix.PtraceSingleStep(pid), waitRaw(pid)); err != nil {
			return regs, err
		}
	}
	return regs, errors.New("it never comes there")
}
