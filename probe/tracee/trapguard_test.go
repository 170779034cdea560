//go:build linux && amd64

package tracee

import (
	"context"
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// A program whose threads block SIGTRAP at a breakpoint keeps its action and the
// threads their masks: traps of its own, and SIGTRAPs that are sent to it, reach
// its handler, even while another thread's breakpoint has reset it.
func TestBlockedTrapOwnTraps(t *testing.T) {
	exe := fixture.Build(t, "tracee_traps.c", "-O1", "-no-pie", "-lpthread")
	for _, c := range []struct {
		threads int
		blocks  string
	}{{1, "all"}, {1, "trap"}, {1, "some"}, {1, "open"}, {6, "all"}, {6, "open"}} {
		t.Run(fmt.Sprint(c.threads, c.blocks), func(t *testing.T) {
			g := spawn(t, exe, fmt.Sprint(c.threads), c.blocks)
			if l := g.line(); l != "ready" {
				t.Fatal(l)
			}
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			b := newBreakpoint(t, siteOf(t, exe))
			stop := running(t, tr, b)
			do(t, tr, func() error { return p.GuardTrap(context.Background(), nil) })
			do(t, tr, func() error { return b.arm(p) })
			g.in.Write([]byte{'\n'})
			eventually(t, "hits, or its end", func() (enough bool) {
				do(t, tr, func() error { enough = b.hits[g.pid] >= 600 || p.Gone(); return nil })
				return enough
			})
			if !p.Gone() {
				do(t, tr, func() error { return b.leave(p) })
			}
			if out, status := g.rest(); status != 0 || out != "" {
				t.Errorf("status %d, %q", status, out)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A program whose handler of SIGTRAP makes SIG_DFL the action, and sends the signal
// again, dies of it: its handler isn't given back for ever.
func TestTrapOwnDefault(t *testing.T) {
	exe := fixture.Build(t, "tracee_owndefault.c", "-O1")
	for _, how := range []string{"raw", "libc"} {
		t.Run(how, func(t *testing.T) {
			g := spawn(t, exe, how)
			if l := g.line(); l != "ready" {
				t.Fatal(l)
			}
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			running(t, tr, &recorder{t: t})
			do(t, tr, func() error { return p.GuardTrap(context.Background(), nil) })
			g.in.Write([]byte{'\n'})
			if out, status := g.rest(); status != 128+5 {
				t.Errorf("status %d, %q, want that of a SIGTRAP", status, out)
			}
		})
	}
}
