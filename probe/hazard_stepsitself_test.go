package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// A program that sets its trap flag sees its own addresses alone, and as many traps as
// ever where a breakpoint stands; a jump's instructions are one step.
func TestHazardD20(t *testing.T) {
	prog := fixture.Build(t, "steps_itself.c", "-O1", "-no-pie")
	const calls = 50
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, fmt.Sprint(calls))
		scan := func() (traps, outside, sum int) {
			if _, err := fmt.Sscanf(sub.work(), "done %d %d %d", &traps, &outside, &sum); err != nil {
				t.Fatal(err)
			}
			return
		}
		before, _, want := scan()
		l, c := engage(t, sub.pid(), o, "p:in work n=$arg1", "r:out work $retval")
		traps, outside, sum := scan()
		l.finish(sub.pid())
		sub.end()
		if outside > 0 || sum != want || traps > before || o.NoOptimize && traps != before || traps < before/2 {
			t.Errorf("no jumps %v: %d traps, %d outside, %d in all; alone %d traps, %d", o.NoOptimize, traps, outside, sum, before, want)
		}
		if got := c.hits.Load(); got != 2*calls {
			t.Errorf("%d hits, want %d", got, 2*calls)
		}
	}
}
