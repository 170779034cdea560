//go:build linux && amd64

package tracee

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// A thread that has raised a fault stops with it, not before the kernel has told of
// it: who takes a cause away, or moves the thread, would leave it the signal.
func TestHazardP51(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_faults.c", "-O2", "-lpthread"), "2")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, &recorder{t: t})
	g.in.Write([]byte("\n"))
	if l := g.line(); l != "ready" {
		t.Fatal(l)
	}
	met, left := 0, 0
	for left == 0 && met < 200 {
		do(t, tr, func() error {
			return p.WithStopped(context.Background(), func(ts []*Thread) error {
				for _, th := range ts {
					if _, ok := th.Signal(); ok {
						met++
					} else if th.status>>16 == unix.PTRACE_EVENT_STOP && ownPending(th.tid) {
						left++
					}
				}
				return nil
			})
		})
	}
	if left > 0 || met == 0 {
		t.Errorf("%d threads were stopped with a fault that nobody was told of, %d with one", left, met)
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// Signals that a thread blocks, and that look like those of its own instructions, don't
// keep anybody from stopping it.
func TestHazardP51Blocked(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_faults.c", "-O2", "-lpthread"), "2", "pending")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, &recorder{t: t})
	g.in.Write([]byte("\n"))
	if l := g.line(); l != "ready" {
		t.Fatal(l)
	}
	eventually(t, "the signals wait", func() bool {
		n := 0
		for _, tid := range mustTasks(t, g.pid) {
			if tid != g.pid && pendingOf(t, g.pid, tid) == sigBit(unix.SIGTRAP)|sigBit(unix.SIGSEGV) {
				n++
			}
		}
		return n == 2
	})
	done := make(chan error, 1)
	go func() {
		for range 20 {
			if err := p.WithStopped(context.Background(), func([]*Thread) error { return nil }); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it can't be stopped")
		unix.Kill(g.pid, unix.SIGKILL)
		<-done
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func mustTasks(t *testing.T, pid int) []int {
	t.Helper()
	tids, err := tasks(pid)
	if err != nil {
		t.Fatal(err)
	}
	return tids
}

// pendingOf is the set of signals that wait for a thread alone.
func pendingOf(t *testing.T, pid, tid int) uint64 {
	t.Helper()
	st, err := procfs.Thread(pid, tid).Status()
	if err != nil {
		t.Fatal(err)
	}
	set, _ := st.Set("SigPnd")
	return set
}
