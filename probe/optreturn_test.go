package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/exits"
	"kprobe/symbols"
)

// TestReturnByTrampoline: a function that jumps to another has one return, which
// both probes see, with the caller's address; several probes of one function
// follow each call.
func TestReturnByTrampoline(t *testing.T) {
	prog := callsFixture(t)
	for _, o := range []Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprintf("optimize %v", !o.NoOptimize), func(t *testing.T) {
			want := plain(t, prog, "tail", "20")
			sub := startSubject(t, prog, "tail", "20")
			l := attach(t, sub.pid(), o, "p:in tail_b n=$arg1", "r:a tail_a n=$arg1 v=$retval", "r:b tail_b n=$arg1 v=$retval", "r:c tail_b v=$retval ip=%ip")
			for _, name := range []string{"in", "a", "b", "c"} {
				if n, why := optimizedOf(l, name); (n == 1) == o.NoOptimize {
					t.Errorf("%s: %d places by a jump: %s", name, n, why)
				}
			}
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			l.finish(sub.pid())
			sub.end()
			lines := l.sink.all()
			if len(lines) != 80 {
				t.Fatalf("%d lines", len(lines))
			}
			for _, line := range lines {
				if !strings.HasPrefix(line, "in ") && !strings.Contains(line, "(run+") {
					t.Errorf("%s: not returned to run", line)
				}
			}
		})
	}
}

// TestReturnMaxactive: of calls in each other only as many are followed as
// there are instances, counted exactly.
func TestReturnMaxactive(t *testing.T) {
	prog := callsFixture(t)
	for _, max := range []int{1, 3, 5} {
		for _, o := range []Options{{}, {NoOptimize: true}} {
			t.Run(fmt.Sprintf("%d optimize %v", max, !o.NoOptimize), func(t *testing.T) {
				const count = 600 // of depths 1 to 6
				sub := startSubject(t, prog, "recurse", fmt.Sprint(count))
				l := attach(t, sub.pid(), o, fmt.Sprintf("r%d:out recurse v=$retval", max))
				sub.work()
				l.finish(sub.pid())
				sub.end()
				seen, all := 0, 0
				for depth := 1; depth <= 6; depth++ {
					seen += min(depth, max) * count / 6
					all += depth * count / 6
				}
				if st := l.stat("out"); st.Hits != uint64(seen) || st.Missed != uint64(all-seen) {
					t.Errorf("%d hits, %d missed; want %d and %d", st.Hits, st.Missed, seen, all-seen)
				}
			})
		}
	}
}

// TestReturnReclaim: instances of calls that were left by longjmp come back.
func TestReturnReclaim(t *testing.T) {
	const threads, depth = 4, 100
	prog := fixture.Build(t, "probe_returns.c", "-O2", "-pthread", "-DSHARED")
	sub := startSubject(t, prog, "jump", "60", fmt.Sprint(threads))
	l := attach(t, sub.pid(), Options{}, "r1024:never rec")
	sub.work()
	used := func() (n int) {
		_ = l.s.engine.Tracer.Do(func() error {
			var err error
			if n, err = instancesHeld(l.s.engine.Targets[sub.pid()]); err != nil {
				t.Error(err)
			}
			return nil
		})
		return n
	}
	if l.stat("never").Missed == 0 {
		t.Error("the pool was never empty")
	}
	// Those that were left since nmissed last grew come back when it grows again.
	tg := l.s.engine.Targets[sub.pid()]
	if err := l.s.engine.Tracer.Do(tg.ReclaimReturns); err != nil {
		t.Error(err)
	}
	if n := used(); n > threads*depth {
		t.Errorf("%d instances in use of %d that could be", n, threads*depth)
	}
	l.finish(sub.pid())
	sub.end()
}

// TestReturnRefused: functions whose returns can't be followed by jumps.
func TestReturnRefused(t *testing.T) {
	prog := callsFixture(t)
	sub := startSubject(t, prog, "work", "5")
	l := attach(t, sub.pid(), Options{}, "r:a work", "r:b libc:dladdr", "r:c libc:vfork", "r:d libc:getcontext")
	for name, want := range map[string]string{"a": "", "b": "", "c": exits.ReturnsTwice, "d": ""} {
		n, why := optimizedOf(l, name)
		if (n == 1) != (want == "") || want != "" && why != want {
			t.Errorf("%s: %d places by a jump, the others because %q", name, n, why)
		}
	}
	sub.work()
	l.finish(sub.pid())
	sub.end()
}

// TestReturnDeep comes and goes while calls are 50 deep in each other.
func TestReturnDeep(t *testing.T) {
	prog := fixture.Build(t, "probe_deep.c", "-O2", "-pthread")
	want := plain(t, prog, "200000", "3")
	sub := startSubject(t, prog, "200000", "3")
	sub.line()
	for i := range 25 {
		l := attach(t, sub.pid(), Options{}, "p:in deep n=$arg1", "r400:out deep n=$arg1 v=$retval", "r100:top top v=$retval")
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		l.finish(sub.pid())
	}
	if got := sub.expect("done"); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	sub.end()
}

// TestStageIsLeftBehind: a thread that stands behind a stage's copies, at the jump to the next stage or in that, has
// executed the instructions of the first, and does not again.
func TestStageIsLeftBehind(t *testing.T) {
	prog := fixture.Build(t, "probe_deep.c", "-O2", "-pthread")
	// Two probes under one jump are two stages wherever the program lies.
	second := inspectFile(t, prog, "deep")[0].Lines[1].Offset
	sub := startSubject(t, prog, "40", "1")
	l := attach(t, sub.pid(), Options{}, "p:in deep n=$arg1", fmt.Sprintf("p:next deep+%d", second), "r400:out deep v=$retval")
	found := 0
	err := l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			for _, p := range tg.Patches.List {
				for i := range max(len(p.Stages)-1, 0) {
					st, next := tg.Patches.StageAt(p.Stages[i].Base), p.Stages[i+1].At
					if next == st.At {
						continue
					}
					found++
					behind := st.CopyAt() + symbols.Addr(st.Copied())
					regs := unix.PtraceRegs{Rip: uint64(behind), Rsp: 0x1000}
					if out, ok := tg.Patches.StageAt(behind).Leave(&regs, tg.Proc); !ok || out.Rip != uint64(next) || out.Rsp != regs.Rsp {
						t.Errorf("behind the copies from %v on a thread is at %#x, want %v", st.At, out.Rip, next)
					}
				}
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d stages, %v", found, err)
	}
	sub.work()
	l.finish(sub.pid())
	sub.end()
}

// TestReturnFork forks 8 calls deep: both processes return, the child to a
// text without probes.
func TestReturnFork(t *testing.T) {
	prog := fixture.Build(t, "probe_deep.c", "-O2", "-pthread")
	want := plain(t, prog, "40", "1", "fork")
	for _, follow := range []bool{false, true} {
		sub := startSubject(t, prog, "40", "1", "fork")
		l := attach(t, sub.pid(), Options{Follow: follow}, "r64:out deep n=$arg1 v=$retval")
		if n, why := optimizedOf(l, "out"); n != 1 {
			t.Errorf("not optimized: %s", why)
		}
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		l.finish(sub.pid())
		sub.end()
		if st := l.stat("out"); st.Hits != 40*9 || st.Missed != 0 {
			t.Errorf("follow %v: %d hits, %d missed, want %d", follow, st.Hits, st.Missed, 40*9)
		}
	}
}
