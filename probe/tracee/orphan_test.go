//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process is killed in the moment of a fork, with breakpoints armed: its
// child is not left waiting, nor with the breakpoints.
func TestParentKilledInFork(t *testing.T) {
	exe := events(t)
	for range 10 {
		g := spawn(t, exe, "orphan")
		tr := newTracer(t)
		p := attach(t, tr, g.pid)
		b := newBreakpoint(t, siteOf(t, exe))
		forks := 0
		b.fork = func(_ *Thread, child *Process, _ ForkKind) bool {
			forks++
			if err := child.WriteMemory([]byte{0x90}, b.site); err != nil {
				t.Error(err)
			}
			return false
		}
		do(t, tr, func() error { return b.arm(p) })
		g.in.Write([]byte{'\n'})
		// Nobody takes the events yet: the parent waits in its fork.
		eventually(t, "the parent stops", func() bool { return taskState(g.pid, g.pid) == 't' })
		syscall.Kill(g.pid, syscall.SIGKILL)
		stop := running(t, tr, b)
		if out, status := g.rest(); status != 128+9 || out != "child" {
			t.Errorf("status %d, %q", status, out)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if forks != 1 {
			t.Errorf("%d forks were told", forks)
		}
	}
}

// keeper is an OrphanKeeper.
type keeper struct {
	recorder
	orphan func(child *Process)
}

func (k *keeper) Orphan(child *Process) { k.orphan(child) }

// A child that nobody claims is let go, after it was put in order.
func TestUnclaimedChild(t *testing.T) {
	g := spawn(t, events(t), "idle")
	tr := newTracer(t)
	other := newTracer(t)
	attach(t, tr, g.pid)
	// A stop of a process that no event has announced, as its parent's end
	// would leave it.
	stray := spawn(t, events(t), "idle")
	do(t, tr, func() error {
		if e := seize(stray.pid, options); e != 0 {
			return e
		}
		if e := ptrace(unix.PTRACE_INTERRUPT, stray.pid, 0, 0); e != 0 {
			return e
		}
		return nil
	})
	told := 0
	k := &keeper{recorder: recorder{t: t}, orphan: func(child *Process) {
		told++
		if child.PID() != stray.pid {
			t.Errorf("%d is an orphan", child.PID())
		}
		if err := child.WriteMemory([]byte{0x90}, siteOf(t, events(t))); err != nil {
			t.Error(err)
		}
		for _, th := range append(child.Threads(), nil) {
			if n, err := child.Syscall(context.Background(), th, unix.SYS_GETPID); err != nil || int(n) != stray.pid {
				t.Errorf("getpid gave %d, %v", n, err)
			}
		}
	}}
	stop := running(t, tr, k)
	eventually(t, "the stray is let go", func() bool {
		p, err := other.Attach(context.Background(), stray.pid)
		if err != nil {
			var traced *TracedError
			if !errors.As(err, &traced) {
				t.Fatal(err)
			}
			return false
		}
		return p.Detach(context.Background(), nil) == nil
	})
	do(t, tr, func() error {
		if told != 1 {
			t.Errorf("told %d times", told)
		}
		return nil
	})
	for _, x := range []*target{stray, g} {
		if _, status := x.rest(); status != 0 {
			t.Errorf("status %d", status)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A process that makes children all the time is killed at random moments, with
// breakpoints armed: no child stays behind, waiting for a tracer.
func TestParentKilledAtRandom(t *testing.T) {
	exe := events(t)
	for range 15 {
		g := spawn(t, exe, "forks")
		tr := newTracer(t)
		p := attach(t, tr, g.pid)
		b := newBreakpoint(t, siteOf(t, exe))
		b.fork = func(_ *Thread, child *Process, kind ForkKind) bool {
			if kind == Fork {
				// It fails only if the child is gone.
				_ = child.WriteMemory([]byte{0x90}, b.site)
			}
			return false
		}
		stop := running(t, tr, b)
		do(t, tr, func() error { return b.arm(p) })
		g.in.Write([]byte{'\n'})
		time.Sleep(time.Duration(rand.IntN(30000)) * time.Microsecond)
		syscall.Kill(g.pid, syscall.SIGKILL)
		// The children hold the pipe: it ends when the last of them does.
		stuck := time.AfterFunc(patient, func() { panic("a child waits, or the parent was not killed") })
		if out, status := g.rest(); status != 128+9 && status != 0 || out != "" {
			t.Errorf("status %d, %q", status, out)
		}
		stuck.Stop()
		eventually(t, "the tracer sees the end", p.Gone)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}
