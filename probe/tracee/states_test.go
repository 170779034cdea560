//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// inClone finds a stopped thread of p whose creation of another thread is
// still to be handled, or nil.
func inClone(p *Process) *Thread {
	for _, th := range p.Threads() {
		if th.Stopped() && th.deferred && th.status>>16 == unix.PTRACE_EVENT_CLONE {
			return th
		}
	}
	return nil
}

// A thread in the middle of clone is led out of it before a call is injected:
// else the kernel would make clone's end the call's, and the thread would make
// another thread with the same stack.
func TestCallInClone(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprint("named=", named), func(t *testing.T) {
			g := spawn(t, events(t), "storm")
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			stop := running(t, tr, &recorder{t: t})
			met := 0
			for end := time.Now().Add(20 * time.Second); met < 20 && time.Now().Before(end); {
				do(t, tr, func() error {
					if err := p.StopAll(context.Background()); err != nil {
						return err
					}
					th := inClone(p)
					if th != nil && named {
						met++
						n, err := p.Syscall(context.Background(), th, unix.SYS_GETTID)
						if !errors.Is(err, ErrNoThread) && (err != nil || int(n) != th.TID()) {
							return fmt.Errorf("gettid gave %d, %v", n, err)
						}
					}
					if err := p.ResumeAll(); err != nil || th == nil || named {
						return err
					}
					// Its event waits; a call that finds it so lets it run on.
					met++
					n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
					if err != nil || int(n) != g.pid {
						return fmt.Errorf("getpid gave %d, %v", n, err)
					}
					for _, th := range p.Threads() {
						if th.Stopped() && !th.deferred {
							return fmt.Errorf("thread %d stays stopped", th.TID())
						}
					}
					return nil
				})
			}
			if met == 0 {
				t.Error("no thread was met in clone")
			}
			do(t, tr, func() error { return p.Detach(context.Background(), nil) })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if out, status := g.rest(); status != 0 {
				t.Errorf("status %d, %q", status, out)
			}
		})
	}
}

// A signal that is taken from the program, with a call injected at its stop,
// doesn't show in the wait that it interrupted.
func TestTakenSignalHidesCall(t *testing.T) {
	exe := fixture.Build(t, "tracee_eintr.c", "-O1", "-lrt")
	for _, name := range []string{"epoll_wait", "recv_timeout", "semtimedop", "nanosleep", "poll"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, _ := spawn(t, exe, name).rest()
			for ms := 300; ; ms *= 4 {
				if takenInWait(t, exe, name, ms, want) {
					break
				}
				if ms > 60_000 {
					t.Fatal("it never waited for long enough")
				}
			}
		})
	}
}

// takenInWait has a program wait for so many milliseconds and takes signals from it,
// with calls injected; false is that the wait was over too early, on a loaded
// machine. Its result is the same in any case.
func takenInWait(t *testing.T, exe, name string, ms int, want string) bool {
	t.Helper()
	g := spawn(t, exe, name, strconv.Itoa(ms))
	tr := newTracer(t)
	p, err := tr.Attach(context.Background(), g.pid)
	if errors.Is(err, ErrGone) || errors.Is(err, ErrZombie) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	stop := running(t, tr, &recorder{t: t, sig: func(th *Thread, si *Siginfo) Verdict {
		if si.Signal() != syscall.SIGUSR2 {
			return Deliver
		}
		taken++
		if taken%2 == 1 {
			return Resume
		}
		if _, err := p.Syscall(context.Background(), th, unix.SYS_GETPPID); err != nil {
			t.Error(err)
		}
		return Resume
	}})
	// What it does when it doesn't wait any more: it ends.
	state := func() byte { return taskState(g.pid, g.pid) }
	over := func() bool { return strings.IndexByte("ZX\x00", state()) >= 0 }
	eventually(t, "it waits", func() bool { return state() == 'S' || over() })
	early := false
	for i := range 4 {
		err := tr.Do(func() error {
			if err := syscall.Kill(g.pid, syscall.SIGUSR2); err != nil || i%2 == 1 {
				return err
			}
			// The signal's stop is met before its event is handled.
			eventually(t, "it stops", func() bool { return state() != 'S' })
			return p.WithStopped(context.Background(), func(ts []*Thread) error {
				_, err := p.Syscall(context.Background(), ts[0], unix.SYS_GETPPID)
				if errors.Is(err, ErrNoThread) && ts[0].status>>16 == unix.PTRACE_EVENT_EXIT {
					return ErrGone // it is about to end
				}
				return err
			})
		})
		if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		early = early || err != nil
	}
	got, status := g.rest()
	if got != want || status != 0 {
		t.Errorf("%q, status %d; untraced %q", got, status, want)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	return !early && taken >= 2
}

// A call that is given up leaves the thread as it was, wherever it was.
func TestCallGivenUp(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "2")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, &recorder{t: t})
	late := 0
	for range 15 {
		do(t, tr, func() error {
			return p.WithStopped(context.Background(), func(ts []*Thread) error {
				for _, th := range ts {
					before, err := th.Regs()
					if err != nil {
						return err
					}
					want := *before
					ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
					_, err = p.Syscall(ctx, th, unix.SYS_PAUSE)
					cancel()
					if !errors.Is(err, ErrTimeout) {
						return fmt.Errorf("pause: %w", err)
					}
					late++
					after, err := th.Regs()
					if err != nil || *after != want {
						return fmt.Errorf("registers differ, %w", err)
					}
				}
				return nil
			})
		})
	}
	if out, status := g.rest(); status != 0 || out != "" || late == 0 {
		t.Errorf("status %d, %q; %d calls given up", status, out, late)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A thread that runs in a place lent to it, since its tracer was killed, gets
// no place for another call next to it, where others may still wait.
func TestLentPlacesAreKept(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "2")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		return p.WithStopped(context.Background(), func(ts []*Thread) error {
			const size = 2900
			maps, err := readMaps(g.pid)
			if err != nil {
				return err
			}
			var first, second room
			var regs unix.PtraceRegs // on no stack that is known
			if !p.findStack(&first, maps, &regs, size) || !first.wipe {
				return errors.New("no place")
			}
			if err := p.WriteMemory([]byte{1}, symbols.Addr(first.base)); err != nil {
				return err
			}
			if !p.findStack(&second, maps, &regs, size) || second.base+size > first.base {
				return fmt.Errorf("places at %#x and %#x", first.base, second.base)
			}
			if err := p.WriteMemory([]byte{1}, symbols.Addr(second.base)); err != nil {
				return err
			}
			var third room
			regs.Rsp = first.base + 16
			if !p.findStack(&third, maps, &regs, size) || third.base+size > second.base {
				return fmt.Errorf("a call from the place at %#x is put at %#x, over that at %#x", first.base, third.base, second.base)
			}
			return p.WriteMemory([]byte{0}, symbols.Addr(first.base))
		})
	})
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
}
