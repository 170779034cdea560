//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Thousands of threads stop and go on, and calls find one of them.
func TestCrowd(t *testing.T) {
	const threads = 2000
	g := spawn(t, events(t), "crowd", "2000")
	if l := g.line(); l != "ready" {
		t.Fatal(l)
	}
	tr := newTracer(t)
	begun := time.Now()
	p := attach(t, tr, g.pid)
	t.Logf("attached to %d threads in %v", threads+1, time.Since(begun))
	stop := running(t, tr, &recorder{t: t})
	for range 3 {
		begun = time.Now()
		var all time.Duration
		do(t, tr, func() error {
			return p.WithStopped(context.Background(), func(ts []*Thread) error {
				all = time.Since(begun)
				if len(ts) != threads+1 {
					t.Errorf("%d threads stopped", len(ts))
				}
				n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
				if err == nil && int(n) != g.pid {
					t.Errorf("getpid gave %d", n)
				}
				return err
			})
		})
		t.Logf("stopped in %v, and all over in %v", all, time.Since(begun))
	}
	begun = time.Now()
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	t.Logf("detached in %v", time.Since(begun))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(threadStates(g.pid), 't') {
		t.Error("a thread stayed stopped")
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// A thread that waits for its vfork child can't be stopped: it is named, and
// goes on undisturbed when the child is done.
func TestStopVforkParent(t *testing.T) {
	for _, before := range []bool{true, false} {
		name := "attached while it waits"
		if before {
			name = "attached before"
		}
		t.Run(name, func(t *testing.T) {
			g := spawn(t, events(t), "vforks")
			tr := newTracer(t)
			var p *Process
			var stop func() error
			begin := func() {
				p = attach(t, tr, g.pid)
				stop = running(t, tr, &recorder{t: t})
			}
			if before {
				begin()
			}
			g.in.Write([]byte{'\n'})
			if l := g.line(); l != "ready" {
				t.Fatal(l)
			}
			if !before {
				begin()
			}
			err := p.WithStopped(context.Background(), func(ts []*Thread) error {
				if len(ts) != 0 {
					t.Errorf("%d threads stopped", len(ts))
				}
				return nil
			})
			var late *NotStoppedError
			if !errors.As(err, &late) || !slices.Equal(late.TIDs, []int{g.pid}) {
				t.Errorf("stop: %v", err)
			}
			if _, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID); !errors.Is(err, ErrNoThread) {
				t.Errorf("call: %v", err)
			}
			g.in.Write([]byte{'\n'})
			if _, status := g.rest(); status != 0 {
				t.Errorf("status %d", status)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
