package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
)

// TestBypassed: functions whose returns have no room for a jump, because branches lead to them and
// the next function starts behind them. All are jumps, with values and counted, and each return is
// seen once: by a branch, by falling into it, and where a call of another function comes to it by
// its address, which meets the guard, none. Signals and other probes come and go meanwhile.
func TestBypassed(t *testing.T) {
	prog := fixture.Build(t, "bypassed.c", "-O1", "-pthread")
	const rounds, threads = 20000, 3
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	want := plain(t, prog, args...)
	const calls = rounds * threads
	names := []string{"led", "onward", "falls", "last"}
	for _, o := range []Options{{}, {CountOnly: true}} {
		sub := startSubject(t, prog, args...)
		sink := &returned{n: map[string]uint64{}}
		var defs []string
		for _, name := range names {
			defs = append(defs, "r:"+name+" "+name+" v=$retval x=$arg1")
		}
		l := engageInto(t, sub.pid(), o, sink, append(defs, `p:start onward v=\1:s64 x=\0:s64`, `p:start last v=\1:s64 x=\0:s64`)...)
		jumps := func(when string) {
			for _, name := range names {
				if n, why := optimizedOf(l, name); n != 1 {
					t.Errorf("%s %s is no jump: %s", name, when, why)
				}
			}
			bypassed := 0
			onTracer(t, l, func(tg *engine.Target) error {
				for _, p := range tg.Patches.List {
					if p.Armed && p.Plan.Tactic == plan.Bypass {
						bypassed++
					}
				}
				return nil
			})
			if bypassed != 2 {
				t.Errorf("%s %d patches are bypasses, want 2", when, bypassed)
			}
		}
		jumps("at first")
		for range 3 { // what gives way to one of the jumps
			link, err := l.s.Add(t.Context(), parseDefs(t, "p:mov led+25"))
			if err != nil {
				t.Fatal(err)
			}
			if err := link.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		jumps("after changes")
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for _, name := range names {
			if st := l.stat(name); st.Hits != calls || st.Missed != 0 || !o.CountOnly && sink.n[name]+st.Lost != st.Hits {
				t.Errorf("%s: %+v, %d records, want %d", name, st, sink.n[name], calls)
			}
		}
		if sink.bad != 0 {
			t.Errorf("%d returns with a wrong value", sink.bad)
		}
	}
}
