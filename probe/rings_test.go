package probe

import (
	"maps"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// ringDefs are definitions of functions' entries and returns; the returns have more.
func ringDefs(names []string, more string) (defs []string) {
	for _, n := range names {
		defs = append(defs, "p:in_"+n+" "+n, "r:"+n+" "+n+more)
	}
	return defs
}

// TestRings: where functions jump to one another in circles, each call is a hit or missed, however its return is seen, and a
// hit if there are instances for all. Calls that longjmp or an exception has left are neither; where hits are counted as
// calls come back, and where none is free, some of these may be.
func TestRings(t *testing.T) {
	for _, flags := range [][]string{{"-DTHROWS"}, {"-fno-exceptions", "-Wl,--as-needed"}} {
		prog := fixture.Build(t, "probe_rings.cc", append([]string{"-O2", "-pthread"}, flags...)...)
		args := []string{"1", "2"}
		want := plain(t, prog, args...)
		entered, left := numbersOf(t, want)
		names := slices.Sorted(maps.Keys(entered))
		const recorded = " v=$retval x=$arg1"
		for _, c := range []struct {
			name    string
			o       Options
			more    string
			comes   bool // calls that come back may be hits at once
			missing bool // some may be missed
		}{
			{"jumps, counted", Options{CountOnly: true}, "", true, false},
			{"jumps, recorded", Options{}, recorded, false, false},
			{"breakpoints, counted", Options{CountOnly: true, NoOptimize: true}, "", false, false},
			{"breakpoints, recorded", Options{NoOptimize: true}, recorded, false, false},
			{"breakpoints, counted, few instances", Options{CountOnly: true, NoOptimize: true, Active: 4}, "", true, true},
			{"breakpoints, few instances", Options{NoOptimize: true, MaxActive: 4}, recorded, false, true},
		} {
			t.Run(flags[0]+" "+c.name, func(t *testing.T) {
				sub := startSubject(t, prog, args...)
				l, _ := engage(t, sub.pid(), c.o, ringDefs(names, c.more)...)
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				l.finish(sub.pid())
				sub.end()
				for _, n := range names {
					calls, least := uint64(entered[n]), uint64(entered[n]-left[n])
					if in := l.stat("in_" + n); in.Hits != calls {
						t.Errorf("%s: entered %d times, want %d", n, in.Hits, calls)
					}
					st, most := l.stat(n), least
					if c.comes || c.missing {
						most = calls
					}
					if all := st.Hits + st.Missed; all < least || all > most || st.Missed > 0 && !c.missing {
						t.Errorf("%s: %d hits, %d missed, want %d of %d", n, st.Hits, st.Missed, least, calls)
					}
				}
			})
		}
	}
}
