package probe

import (
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// TestLeavesGuards takes a jump out while the signal of a thread that has met one
// of its guards is still to be handled: the program never sees it.
func TestLeavesGuards(t *testing.T) {
	// In the lowest 2 GiB a jump can't lead down by 0xcc……: some guards are other
	// bytes than a breakpoint's.
	sub := &storm{subject: startSubject(t, fixture.Build(t, "hazard_storm.c", "-O2", "-lpthread", "-no-pie"), "1")}
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:always f3", "p:a f0", "p:b f1", "p:c f2", "p:d f4", "p:e f5", "p:f f6")
	sub.line()
	var jump *engine.Patch
	var guard plan.Guard
	left := false
	stopped := func(fn func(th *tracee.Thread)) func(tg *engine.Target) error {
		return func(tg *engine.Target) error {
			return tg.Proc.WithStopped(t.Context(), func(all []*tracee.Thread) error { fn(all[len(all)-1]); return nil })
		}
	}
	if !waitUntil(func() bool {
		onTracer(t, l, func(tg *engine.Target) error {
			for _, p := range tg.Patches.List {
				for g := range p.Guards() {
					if g.Byte != int3 {
						jump, guard = p, g
					}
				}
			}
			if jump == nil {
				t.Fatal("no guard raises SIGILL")
			}
			var was unix.PtraceRegs
			ready := false
			put := stopped(func(th *tracee.Thread) {
				regs, err := th.Regs()
				if _, signal := th.Signal(); err != nil || signal || int64(regs.Orig_rax) >= 0 || !tg.Patches.StageAt(symbols.Addr(regs.Rip)).None() {
					return
				}
				was, ready = *regs, true
				regs.Rip = guard.At
			})
			if err := put(tg); err != nil || !ready {
				return err
			}
			for !left {
				err := stopped(func(th *tracee.Thread) {
					if sig, ok := th.Signal(); !ok || sig != unix.SIGILL {
						return
					}
					left = true
					if err := tg.RestorePatches([]*engine.Patch{jump}, tg.Proc.Threads()); err != nil {
						t.Error(err)
					}
					regs, err := th.Regs()
					if err != nil {
						t.Error(err)
						return
					}
					if _, signal := th.Signal(); signal || regs.Rip != guard.At {
						t.Errorf("it is at %#x, a signal is left: %v; want it at the program's instruction at %#x", regs.Rip, signal, guard.At)
					}
					*regs = was
				})(tg)
				if err != nil {
					return err
				}
			}
			return nil
		})
		return left
	}) {
		t.Error("the thread never met the guard")
	}
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	if st := l.stat("always"); st.Hits != sub.calls[3] {
		t.Errorf("%d hits of %d calls", st.Hits, sub.calls[3])
	}
}
