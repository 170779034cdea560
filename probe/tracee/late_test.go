//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// An interrupt that another stop has swallowed is sent again: a stop of all
// threads doesn't trust that one is under way.
func TestSwallowedInterrupt(t *testing.T) {
	g := spawn(t, events(t), "idle")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		// As a stop at the end of a clone leaves it.
		for _, th := range p.Threads() {
			th.interrupts = true
		}
		return p.WithStopped(context.Background(), func(ts []*Thread) error {
			if len(ts) == 0 || len(ts) != len(p.Threads()) {
				return errors.New("a thread is not stopped")
			}
			return nil
		})
	})
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A process that is left while a thread waits for its vfork child: the thread is
// named, with where it goes on, and is left with the tracer's end at the latest.
func TestDetachVforkParent(t *testing.T) {
	for _, run := range []bool{true, false} {
		g := spawn(t, events(t), "vforks")
		tr, err := New()
		if err != nil {
			t.Fatal(err)
		}
		p := attach(t, tr, g.pid)
		stop := running(t, tr, &recorder{t: t})
		g.in.Write([]byte{'\n'})
		if l := g.line(); l != "ready" {
			t.Fatal(l)
		}
		err = p.Detach(context.Background(), func(ts []*Thread) error {
			late := p.Late()
			if len(ts) != 0 || len(late) != 1 || late[0].TID() != g.pid {
				t.Errorf("%d threads stopped, %d late", len(ts), len(late))
				return nil
			}
			pc, ok := late[0].WaitsAt()
			var b [2]byte
			if _, err := p.ReadMemory(b[:], pc-2); !ok || err != nil || b != [...]byte{0x0f, 0x05} {
				t.Errorf("it goes on at %v, %v, behind % x, %v", pc, ok, b, err)
			}
			return nil
		})
		var late *NotStoppedError
		if !errors.As(err, &late) || !errors.Is(err, ErrTimeout) {
			t.Errorf("detach: %v", err)
		}
		if !run {
			// Nobody takes its stop: the tracer's end lets it go.
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		}
		g.in.Write([]byte{'\n'})
		if _, status := g.rest(); status != 0 {
			t.Errorf("status %d", status)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A process that is left while its only thread waits for a vfork child, whose
// own events nobody has handled yet, gets through and can make its last calls.
func TestDetachInVfork(t *testing.T) {
	tr := newTracer(t)
	for round := range 8 {
		g := spawn(t, events(t), "forks")
		p := attach(t, tr, g.pid)
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		vforks := 0
		h := &recorder{t: t, fork: func(_ *Thread, _ *Process, kind ForkKind) bool {
			if kind == VFork {
				// Of three children one ends, the others execute a program.
				if vforks++; vforks > round%4*3 {
					cancel()
				}
			}
			return round%2 == 1
		}}
		g.in.Write([]byte{'\n'})
		if err := tr.Run(ctx, h); !errors.Is(err, context.Canceled) {
			t.Fatalf("round %d: %v", round, err)
		}
		eventually(t, "it waits for its child", func() bool { return taskState(g.pid, g.pid) == 'D' })
		err := p.Detach(context.Background(), func(ts []*Thread) error {
			n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
			if err == nil && int(n) != g.pid {
				err = fmt.Errorf("getpid gave %d", n)
			}
			return err
		})
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		for len(tr.processes()) > 0 {
			// A child that was followed goes on, or ends, as it is.
			for _, p := range tr.processes() {
				if err := p.Detach(context.Background(), nil); err != nil && !errors.Is(err, ErrGone) {
					t.Errorf("round %d: %v", round, err)
				}
			}
		}
		if _, status := g.rest(); status != 0 {
			t.Errorf("round %d: status %d", round, status)
		}
	}
}

// The same where the thread has just made the child, and nobody was told.
func TestDetachAtVfork(t *testing.T) {
	tr := newTracer(t)
	for range 5 {
		g := spawn(t, events(t), "vforks")
		p := attach(t, tr, g.pid)
		if err := running(t, tr, &recorder{t: t})(); err != nil {
			t.Fatal(err)
		}
		g.in.Write([]byte("\nx"))
		waitsTraced(t, g.pid)
		err := p.Detach(context.Background(), func([]*Thread) error {
			n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
			if err == nil && int(n) != g.pid {
				err = fmt.Errorf("getpid gave %d", n)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		stop := running(t, tr, &recorder{t: t})
		if _, status := g.rest(); status != 0 {
			t.Errorf("status %d", status)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// A process whose threads all stand at their end takes no calls: it is as good as
// gone, and nothing of it needs to be put in order.
func TestCallAtEnd(t *testing.T) {
	g := spawn(t, events(t), "idle")
	eventually(t, "two threads", func() bool { return len(threadStates(g.pid)) == 2 })
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	g.in.Close()
	// Nobody lets the threads go on from the stops at their ends.
	eventually(t, "it ends", func() bool {
		first, err := os.ReadFile(procfs.Thread(g.pid, g.pid).Path("syscall"))
		return err == nil && strings.HasPrefix(string(first), strconv.Itoa(unix.SYS_EXIT_GROUP)+" ") &&
			strings.Trim(string(threadStates(g.pid)), "tZ") == ""
	})
	err := p.Detach(context.Background(), func([]*Thread) error {
		_, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
		return err
	})
	if !errors.Is(err, ErrGone) || errors.Is(err, ErrNoThread) {
		t.Errorf("a call gave %v", err)
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// Where a thread waits is read from the kernel, and only while it waits.
func TestBlockedAt(t *testing.T) {
	g := spawn(t, events(t), "idle")
	eventually(t, "it sleeps as is told", func() bool {
		b, ok := blockedAt(g.pid, g.pid)
		return ok && b.Nr == unix.SYS_CLOCK_NANOSLEEP && b.Args[0] == 0 && b.Args[2] != 0 && b.PC != 0
	})
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
	if b, ok := blockedAt(g.pid, g.pid); ok {
		t.Errorf("an ended process waits at %+v", b)
	}
}

// A process one of whose threads executes a program, and waits for another,
// which has stopped on its way out and whose event nobody has handled: the
// process can be left, at once.
func TestDetachInExec(t *testing.T) {
	tr := newTracer(t)
	const rounds = 5
	late := 0
	for range rounds {
		g := spawn(t, events(t), "execs")
		eventually(t, "its thread is there", func() bool { ts, _ := tasks(g.pid); return len(ts) == 2 })
		p := attach(t, tr, g.pid)
		g.in.Write([]byte{'\n'})
		eventually(t, "it waits for its thread", func() bool {
			b, ok := blockedAt(g.pid, g.pid)
			return ok && b.Nr == unix.SYS_EXECVE && taskState(g.pid, g.pid) == 'D'
		})
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		start := time.Now()
		if err := p.Detach(ctx, nil); err != nil {
			t.Error(err)
		}
		cancel()
		if d := time.Since(start); d > detachPatience/2 {
			t.Logf("it was left after %v", d)
			late++
		}
		if _, status := g.rest(); status != 15 {
			t.Errorf("status %d, want 15", status)
		}
	}
	if late == rounds { // one may be by a machine that is busy
		t.Error("it never was left at once")
	}
}
