package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestExitsOdd: functions without a return, which run on into the next one, or jump elsewhere; that enter others behind their
// first instruction; that jump to a function that the loader has not picked yet; whose return has only
// no-ops of unknown use behind it; and those by which a thread changes its stack. Each return is seen once,
// with its value, whatever way it is seen, and the program doesn't notice.
func TestExitsOdd(t *testing.T) {
	picks := fixture.Build(t, "exits_odd.cc", "-DPICKS", "-O1", "-shared", "-fPIC")
	prog := fixture.Build(t, "exits_odd.cc", "-O1", "-pthread", "-Wl,-z,lazy", "-Wl,--no-as-needed", picks)
	const threads = 3
	// How often each returns, in halves of the rounds: what others run on into is entered more often.
	returns := map[string]uint64{
		"runs": 2, "ran": 3, "runs_far": 2, "ran_far": 4, "branches": 2, "branched": 3, "pops": 2, "popped": 4,
		"checks": 2, "checked": 3, "whole": 3, "most": 2, "guarded": 3, "unguarded": 2, "through": 2, "picking": 2,
	}
	// Others call these, too. In each thread one call of swapcontext doesn't return.
	libc := map[string]uint64{"syscall": 0, "swapcontext": threads, "_setjmp": 0}
	trapped := map[string]bool{"branches": true, "pops": true}
	for _, o := range []Options{{}, {CountOnly: true}, {NoOptimize: true}} {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("optimize %v, counts %v, many %v", !o.NoOptimize, o.CountOnly, many), func(t *testing.T) {
				rounds := uint64(4000)
				if o.NoOptimize {
					rounds = 200
				}
				args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
				want := plain(t, prog, args...)
				sub := startSubject(t, prog, args...)
				sink := &returned{n: map[string]uint64{}}
				values, none := " v=$retval x=$arg1", ` v=\1 x=\0`
				if o.CountOnly {
					values, none = "", ""
				}
				var defs []string
				for name := range returns {
					defs = append(defs, "r:"+name+" "+name+values)
				}
				for name := range libc {
					defs = append(defs, "r:"+name+" libc:"+name+none, "p:in"+name+" libc:"+name+none)
				}
				if many {
					defs = append(defs, "r:fill fill_*"+values)
				}
				l := engageInto(t, sub.pid(), o, sink, defs...)
				jumps := func(name string, is bool) {
					if n, why := optimizedOf(l, name); many && (n == 1) != (is && !o.NoOptimize) {
						t.Errorf("%s: %d places by a jump, %s", name, n, why)
					}
				}
				for name := range returns {
					jumps(name, !trapped[name])
				}
				for name := range libc {
					jumps(name, true)
				}
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				l.finish(sub.pid())
				sub.end()
				for name, twice := range returns {
					if st := l.stat(name); st.Hits != twice*rounds/2*threads || st.Missed != 0 {
						t.Errorf("%s: %+v, want %d", name, st, twice*rounds/2*threads)
					}
				}
				for name, stay := range libc {
					in, out := l.stat("in"+name), l.stat(name)
					if in.Hits < rounds*threads || out.Hits+stay != in.Hits || out.Missed != 0 {
						t.Errorf("%s: %d calls, %+v", name, in.Hits, out)
					}
				}
				if sink.bad != 0 {
					t.Errorf("%d returns with a wrong value", sink.bad)
				}
			})
		}
	}
}
