//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// knower is a breakpoint whose traps are known by their address.
type knower struct {
	*breakpoint
	asked, looked int
}

func (k *knower) KnowsTrap(_ *Thread, at symbols.Addr) bool {
	k.asked++
	return at == k.site
}

func (k *knower) Breakpoint(t *Thread) Verdict {
	if t.haveSi {
		k.looked++
	}
	return k.breakpoint.Breakpoint(t)
}

// Traps that the handler knows are handled without a look at their siginfo,
// also where a call is injected at the stop, and end as the others do.
func TestKnownTraps(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "loop", "1")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	k := &knower{breakpoint: newBreakpoint(t, siteOf(t, exe))}
	plain := k.brk
	k.brk = func(th *Thread) Verdict {
		if k.asked%64 == 1 {
			if n, err := p.Syscall(context.Background(), th, 39); err != nil || int(n) != g.pid {
				t.Errorf("getpid gave %d, %v", n, err)
			}
		}
		return plain(th)
	}
	stop := running(t, tr, k)
	do(t, tr, func() error { return k.arm(p) })
	eventually(t, "1000 hits", func() bool {
		n := 0
		do(t, tr, func() error { n = k.hits[g.pid]; return nil })
		return n > 1000
	})
	do(t, tr, func() error { return k.leave(p) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, %q", status, out)
	}
	if k.looked != 0 || k.asked < k.hits[g.pid] {
		t.Errorf("%d hits, asked for %d, looked at %d", k.hits[g.pid], k.asked, k.looked)
	}
}

// raise has a stopped thread send itself a signal as the kernel would.
func raise(th *Thread, sig syscall.Signal, code byte) error {
	var werr error
	_, err := th.p.syscallWith(context.Background(), th, unix.SYS_RT_TGSIGQUEUEINFO, func(r *room) []uintptr {
		var si Siginfo
		si[0], si[8] = byte(sig), code
		werr = th.p.WriteMemory(si[:], symbols.Addr(r.buffer))
		return []uintptr{uintptr(th.p.pid), uintptr(th.tid), uintptr(sig), uintptr(r.buffer)}
	})
	return errors.Join(err, werr)
}

// An int3's trap is found behind many signals that the thread blocks.
func TestTrapPendingBehindOthers(t *testing.T) {
	g := spawn(t, events(t), "loop", "1")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	do(t, tr, func() error {
		return p.withStopped(context.Background(), func(ts []*Thread) error {
			th := ts[0]
			if err := th.SetSigMask(sigBit(40)); err != nil {
				return err
			}
			for range 32 {
				if err := raise(th, 40, 0); err != nil {
					return err
				}
			}
			if ownPending(th.tid) {
				t.Error("a trap is seen that isn't there")
			}
			if err := raise(th, unix.SIGTRAP, siKernel); err != nil {
				return err
			}
			if !ownPending(th.tid) {
				t.Error("the trap behind 32 signals isn't seen")
			}
			return p.Kill()
		})
	})
}

// A call in any thread, which is interrupted for it, may meet one that has just
// hit an int3: the interrupt's stop comes before the trap's. Here the trap is
// the thread's own doing, and waits while it is asked to stop again.
func TestCallMeetsTrap(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "loop", "1")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	b := newBreakpoint(t, siteOf(t, exe))
	met := make(chan struct{}, 1)
	sent, calls := 0, 0
	b.brk = func(*Thread) Verdict { met <- struct{}{}; return Resume }
	stop := running(t, tr, b)
	ctx := context.Background()
	eventually(t, "three threads that wait for nothing at birth", func() bool {
		n := 0
		do(t, tr, func() error {
			for _, th := range p.Threads() {
				if th.announced && !th.Stopped() {
					n++
				}
			}
			return nil
		})
		return n == 3
	})
	for range 300 {
		trapped := false
		do(t, tr, func() error {
			// The one that loops was made last.
			th := slices.MaxFunc(p.Threads(), func(a, b *Thread) int { return a.tid - b.tid })
			err := p.briefly(th, func() error {
				trapped = true
				return raise(th, unix.SIGTRAP, siKernel)
			})
			if err == nil {
				err = p.briefly(th, func() error {
					calls++
					n, err := p.Syscall(ctx, th, unix.SYS_GETPID)
					if err == nil && int(n) != g.pid {
						err = fmt.Errorf("getpid gave %d", n)
					}
					return err
				})
			}
			if errors.Is(err, ErrNoThread) && !th.Stopped() {
				return nil // a loaded machine: it did not come to its stop in time
			}
			return err
		})
		if !trapped {
			continue
		}
		sent++
		// An int3 isn't hit twice before it is handled, and no program is left
		// with the trap of one that was never there.
		select {
		case <-met:
		case <-time.After(patient):
			t.Fatalf("trap %d was not met, with %d calls", sent, calls)
		}
	}
	do(t, tr, func() error { return b.leave(p) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if out, status := g.rest(); status != 0 || len(met) != 0 || calls == 0 {
		t.Errorf("status %d, %q, %d traps, %d more, %d calls", status, out, sent, len(met), calls)
	}
}

// The program's own int3, which the handler took for one of its, still gets
// its SIGTRAP, with its siginfo.
func TestKnownTrapIsTheProgramsOwn(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "loop", "1")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	k := &knower{breakpoint: newBreakpoint(t, siteOf(t, exe))}
	k.brk = func(*Thread) Verdict { return NotMine }
	running(t, tr, k)
	do(t, tr, func() error { return k.arm(p) })
	eventually(t, "the program ends", func() bool { return hasEnded(taskState(g.pid, g.pid)) })
	if _, status := g.rest(); status != 128+5 {
		t.Errorf("status %d, want that of a SIGTRAP", status)
	}
}

// A call can be made in a process whose only thread has stopped with a SIGTRAP that another process sent. The signal comes
// after the call.
func TestCallMeetsSentTrap(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_seccomp.c", "-O1", "-static"), "plain")
	if l := g.line(); l != "ready" {
		t.Fatal(l)
	}
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	if err := syscall.Kill(g.pid, syscall.SIGTRAP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the signal's stop", func() bool { return taskState(g.pid, g.pid) == 't' })
	do(t, tr, func() error {
		return p.withStopped(context.Background(), func([]*Thread) error {
			for range 2 {
				if n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID); err != nil || int(n) != g.pid {
					t.Errorf("getpid gave %d, %v", n, err)
				}
			}
			return nil
		})
	})
	running(t, tr, &recorder{t: t})
	if _, status := g.rest(); status != 128+5 {
		t.Errorf("status %d, want that of a SIGTRAP", status)
	}
}
