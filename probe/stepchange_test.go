package probe

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/probe/engine"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// TestSignalsWhileProbesChange sends signals to threads that hit breakpoints and
// are stepped out of the copies, while jumps are written
// over the same instructions and taken out: wherever a step has led a thread, the
// program counts right. Mostly a guard would catch a thread that is not moved:
// TestMovesStepped shows that it is.
func TestSignalsWhileProbesChange(t *testing.T) {
	sub := startStorm(t, "4")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:always f3")
	sub.line()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", sub.pid()))
			for _, task := range tasks[min(3, len(tasks)):] { // the first are left for injected calls
				select {
				case <-end:
					return
				default:
				}
				tid, _ := strconv.Atoi(task.Name())
				// Ignored by the program, and seen by its tracer.
				_ = unix.Tgkill(sub.pid(), tid, unix.SIGWINCH)
			}
		}
	}()
	stop := sync.OnceFunc(func() { close(end); <-ended })
	defer stop()
	hits := 0
	for range full(20, 3000) {
		var inner, outer []Probe
		see := func(*Kprobe, *Regs) bool { hits++; return false }
		for _, at := range []struct {
			fn  string
			off uint64
		}{{"f0", 1}, {"f0", 2}, {"f2", 2}, {"f5", 1}} {
			inner = append(inner, &Kprobe{Symbol: at.fn, Offset: at.off, PreHandler: see, PostHandler: func(*Kprobe, *Regs) {}})
		}
		for _, f := range []string{"f0", "f2", "f5"} {
			outer = append(outer, &Kprobe{Symbol: f})
		}
		for _, err := range []error{
			l.s.RegisterAll(t.Context(), inner...), l.s.UnregisterAll(t.Context(), inner...),
			l.s.RegisterAll(t.Context(), outer...), l.s.UnregisterAll(t.Context(), outer...),
			l.s.RegisterAll(t.Context(), append(inner, outer...)...), l.s.UnregisterAll(t.Context(), inner...),
			l.s.UnregisterAll(t.Context(), outer...),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	if st := l.stat("always"); st.Hits != sub.calls[3] || hits == 0 {
		t.Errorf("%d hits of %d calls; the handlers had %d", st.Hits, sub.calls[3], hits)
	}
}

// TestMovesStepped writes a jump over an instruction to which a thread has just
// been stepped, out of the copy of a breakpoint's that makes way: its trap is
// still to be handled, and it is moved into the jump's detour nevertheless.
func TestMovesStepped(t *testing.T) {
	sub := startStorm(t, "1")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:always f3", "p:jump f0")
	tactics(t, l, "always", "jump")
	var jump *engine.Patch
	onTracer(t, l, func(tg *engine.Target) error {
		jump = jumpOf(tg, "jump")
		return tg.WithStopped(t.Context(), func(stopped []*tracee.Thread) error { return tg.RestorePatches([]*engine.Patch{jump}, stopped) })
	})
	inner := &Kprobe{Symbol: "f0", Offset: 1, PostHandler: func(*Kprobe, *Regs) {}}
	if err := l.s.Register(t.Context(), inner); err != nil {
		t.Fatal(err)
	}
	sub.line()
	moved := 0
	if !waitUntil(func() bool {
		onTracer(t, l, func(tg *engine.Target) error {
			return tg.Proc.WithStopped(t.Context(), func(stopped []*tracee.Thread) error {
				for _, th := range stopped {
					regs, err := th.Regs()
					if err != nil || !th.Stepping() || regs.Rip <= jump.Plan.At || regs.Rip >= jump.Plan.End() {
						continue
					}
					return moveStepped(t, tg, jump, th, stopped, &moved)
				}
				return nil
			})
		})
		return moved == 20 || t.Failed()
	}) {
		t.Errorf("a thread was found stepped under the jump %d times", moved)
	}
	if err := l.s.Unregister(t.Context(), inner); err != nil {
		t.Fatal(err)
	}
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	if st := l.stat("always"); st.Hits != sub.calls[3] {
		t.Errorf("%d hits of %d calls", st.Hits, sub.calls[3])
	}
}

// moveStepped has a jump take the place of the breakpoints under it, and back.
func moveStepped(t *testing.T, tg *engine.Target, jump *engine.Patch, th *tracee.Thread, stopped []*tracee.Thread, moved *int) error {
	regs, err := th.Regs()
	if err != nil {
		return err
	}
	want, ok := jump.Entry(symbols.Addr(regs.Rip))
	if !ok {
		return fmt.Errorf("nothing is known of %#x under the jump", regs.Rip)
	}
	under := sitesIn(tg, jump.Plan.At, jump.Plan.End())
	if err := tg.RestoreSites(under); err != nil {
		return err
	}
	if err := rearm(tg, jump, stopped); err != nil {
		return err
	}
	if symbols.Addr(regs.Rip) != want {
		t.Errorf("it stands at %#x yet, and not at %v in the detour", regs.Rip, want)
	}
	*moved++
	if err := tg.RestorePatches([]*engine.Patch{jump}, tg.Proc.Threads()); err != nil {
		return err
	}
	return tg.WriteAll(under)
}
