package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestExitsOuter: functions of which some calls end in an outer one by setting the stack, as those that
// deliver exceptions do, and functions with switches that lead to their cold parts. Each return is seen
// once, with its value, and what ends otherwise is none; all are jumps, and no call stops its thread.
func TestExitsOuter(t *testing.T) {
	prog := fixture.Build(t, "exits_outer.cc", "-O1", "-pthread")
	const threads = 3
	// How often each returns, in quarters of the rounds.
	returns := map[string]uint64{"nearby": 4, "hoisted": 4, "beside_nearby": 4, "beside_hoisted": 4}
	for _, way := range []string{"jump", "ret", "lea_jump", "lea_ret"} {
		returns["outer_"+way], returns["between_"+way], returns["deliver_"+way] = 4, 1, 2
	}
	parse := func(line string) (sum, waits int64) {
		if _, err := fmt.Sscanf(line, "done %d %d", &sum, &waits); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return sum, waits
	}
	for _, o := range []Options{{}, {CountOnly: true}, {NoOptimize: true}} {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("optimize %v, counts %v, many %v", !o.NoOptimize, o.CountOnly, many), func(t *testing.T) {
				rounds := uint64(8000)
				if o.NoOptimize {
					rounds = 200
				}
				args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
				want, _ := parse(plain(t, prog, args...))
				sub := startSubject(t, prog, args...)
				sink := &returned{n: map[string]uint64{}}
				values := " v=$retval x=$arg1"
				if o.CountOnly {
					values = ""
				}
				kind := "r64:"
				if many {
					kind = "r:" // of a fixed number of calls each must be noted
				}
				var defs []string
				for name := range returns {
					defs = append(defs, kind+name+" "+name+values)
				}
				if many {
					defs = append(defs, "r:fill fill_*"+values)
				}
				l := engageInto(t, sub.pid(), o, sink, defs...)
				for name := range returns {
					if n, why := optimizedOf(l, name); (n == 1) == o.NoOptimize {
						t.Errorf("%s: %d places by a jump, %s", name, n, why)
					}
				}
				got, waits := parse(sub.work())
				if got != want {
					t.Errorf("probed, the program's sum is %d, otherwise %d", got, want)
				}
				if waits > 100*threads && !o.NoOptimize {
					t.Errorf("the threads have waited %d times", waits)
				}
				l.finish(sub.pid())
				sub.end()
				for name, quarters := range returns {
					n := quarters * rounds / 4 * threads
					if st := l.stat(name); st.Hits != n || st.Missed != 0 || !o.CountOnly && sink.n[name]+st.Lost != n {
						t.Errorf("%s: %+v, %d records, want %d", name, st, sink.n[name], n)
					}
				}
				if sink.bad != 0 {
					t.Errorf("%d returns with a wrong value", sink.bad)
				}
			})
		}
	}
}
