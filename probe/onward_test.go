package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestOnward: functions that end in a jump through a pointer have their returns by jumps
// where what they lead to is probed as well, and where it isn't each return is seen all
// the same; what was left by an exception or longjmp is none, also if the next call has
// the same stack and returns to the same place.
func TestOnward(t *testing.T) {
	prog := fixture.Build(t, "probe_onward.cc", "-O2", "-pthread")
	const rounds, threads = 3, 2
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	want := plain(t, prog, args...)
	// Of each target's calls a third may be left; i is 0 to 2.
	const all, left = rounds * threads, rounds / 3 * threads
	hops := []string{"r:hop probe_onward:hop_*", "r:through through", "r:twice twice", "r:own own"}
	for _, c := range []struct {
		name string
		defs []string
	}{
		{"all", append(hops[:4:4], "r:alike alike", "r:raises raises", "r:flees flees")},
		{"few", hops},
	} {
		sub := startSubject(t, prog, args...)
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, c.defs...)
		for name, n := range map[string]int{"hop": 40, "through": 1, "twice": 1} {
			if jumps, why := optimizedOf(l, name); jumps != n {
				t.Errorf("%s: %s: %d of %d places by a jump: %s", c.name, name, jumps, n, why)
			}
		}
		if got := sub.work(); got != want {
			t.Errorf("%s: probed, the program printed %q, otherwise %q", c.name, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		of := uint64(5*all - 2*left)
		for name, n := range map[string]uint64{"hop": 40*of + of, "through": of, "twice": of} {
			if st := l.stat(name); st.Hits != n || st.Missed != 0 {
				t.Errorf("%s: %s: %+v, want %d hits", c.name, name, st, n)
			}
		}
	}
}
