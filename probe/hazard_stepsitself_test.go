package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// A program that sets its trap flag sees its own addresses alone, and as many traps as
// ever where a breakpoint stands; a jump's instructions are one step. So it is where steps
// are told as virtual machines do now and then.
func TestHazardD20(t *testing.T) {
	prog := fixture.Build(t, "steps_itself.c", "-O1", "-no-pie")
	const calls = 50
	test := func(t *testing.T, o Options, untold bool) {
		sub := startSubject(t, prog, fmt.Sprint(calls))
		scan := func() (traps, outside, sum int) {
			if _, err := fmt.Sscanf(sub.work(), "done %d %d %d", &traps, &outside, &sum); err != nil {
				t.Fatal(err)
			}
			return
		}
		before, _, want := scan()
		l, c := engage(t, sub.pid(), o, "p:in work n=$arg1", "r:out work $retval")
		if untold {
			if err := l.s.engine.Tracer.Do(func() error { l.s.engine.Tracer.LoseStatus(); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		traps, outside, sum := scan()
		l.finish(sub.pid())
		sub.end()
		if outside > 0 || sum != want || traps > before || o.NoOptimize && traps != before || traps < before/2 {
			t.Errorf("%d traps, %d outside, %d in all; alone %d traps, %d", traps, outside, sum, before, want)
		}
		if got := c.hits.Load(); got != 2*calls {
			t.Errorf("%d hits, want %d", got, 2*calls)
		}
	}
	for _, o := range []Options{{}, {NoOptimize: true}} {
		for _, untold := range []bool{false, true} {
			t.Run(fmt.Sprintf("no jumps %v, untold %v", o.NoOptimize, untold), func(t *testing.T) { test(t, o, untold) })
		}
	}
}

// A program that steps itself all the time can be probed and left, and keeps its trap flag.
func TestHazardD20Forever(t *testing.T) {
	prog := fixture.Build(t, "steps_itself.c", "-O1", "-no-pie")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		for range 3 {
			sub := startSubject(t, prog, "1", "forever")
			l, c := engage(t, sub.pid(), o, "p:in work n=$arg1", "r:out work $retval")
			if !waitUntil(func() bool { return c.hits.Load() > 20 }) {
				t.Error("no hits")
			}
			l.finish(sub.pid())
			var traps, outside, wrong int
			if _, err := fmt.Sscanf(sub.work(), "done %d %d %d", &traps, &outside, &wrong); err != nil {
				t.Fatal(err)
			}
			sub.end()
			if outside+wrong > 0 {
				t.Errorf("no jumps %v: of %d traps %d outside; %d wrong", o.NoOptimize, traps, outside, wrong)
			}
		}
	}
}
