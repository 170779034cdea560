//go:build linux && amd64

package tracee

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// spawnWorkers starts tracee_workers.c in one of its modes.
func spawnWorkers(t *testing.T, mode string) (g *target, exe string) {
	t.Helper()
	exe = fixture.Build(t, "tracee_workers.c", "-O1", "-no-pie", "-static", "-lpthread")
	g = spawn(t, exe, mode)
	if l := g.line(); strings.HasPrefix(l, "refused") {
		fixture.Missing(t, "io_uring, which says %q", l)
	} else if l != "ready" {
		t.Fatal(l)
	}
	return g, exe
}

// Threads that the kernel has made in a process (io_uring's) are not waited for,
// and a process is traced by its number when its first thread has ended.
func TestKernelsThreadsAndEndedLeader(t *testing.T) {
	for _, mode := range []string{"sqpoll", "worker", "leader"} {
		t.Run(mode, func(t *testing.T) {
			g, exe := spawnWorkers(t, mode)
			if mode != "leader" {
				eventually(t, "a thread of the kernel's", func() bool {
					tids, _ := tasks(g.pid)
					return len(tids) > 1
				})
			}
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			b := newBreakpoint(t, siteOf(t, exe))
			exited := false
			b.exited = func(*Process, syscall.WaitStatus) { exited = true }
			stop := running(t, tr, b)
			// Who waits for those that never stop waits each time.
			var took time.Duration
			for range 10 {
				begun := time.Now()
				do(t, tr, func() error {
					if _, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID); err != nil {
						return err
					}
					return p.WithStopped(context.Background(), func([]*Thread) error { return nil })
				})
				if took = time.Since(begun); took <= stopPatience {
					break
				}
			}
			if took > stopPatience {
				t.Errorf("%v for a call and a stop", took)
			}
			do(t, tr, func() error { return b.arm(p) })
			hits := func() (n int) {
				do(t, tr, func() error { n = b.hits[g.pid]; return nil })
				return n
			}
			eventually(t, "20 hits", func() bool { return hits() >= 20 })
			if maps, err := symbols.ReadMaps(g.pid); err != nil || len(maps) == 0 {
				t.Errorf("%d mappings, %v", len(maps), err)
			}
			idle := spawn(t, events(t), "idle")
			other := attach(t, tr, idle.pid)
			do(t, tr, func() error { return b.leave(p) })
			if exited {
				t.Error("a process that runs was taken for one that has ended")
			}

			// Its end is noticed, too, though something else is still traced.
			attach(t, tr, g.pid)
			if out, status := g.rest(); status != 0 || out != "" {
				t.Errorf("status %d, %q", status, out)
			}
			eventually(t, "its end is noticed", func() (seen bool) {
				do(t, tr, func() error { seen = exited; return nil })
				return seen
			})
			do(t, tr, func() error { return other.Detach(context.Background(), nil) })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
