package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
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
	hops := []string{"r:hop probe_onward:hop_*", "r:through through", "r:twice twice", "r:indexed indexed", "r:listed listed", "r:own own"}
	targets := append(hops[:len(hops):len(hops)], "r:alike alike", "r:raises raises", "r:flees flees")
	for _, c := range []struct {
		name string
		o    Options
		defs []string
	}{
		{"all", Options{CountOnly: true}, targets},
		{"few", Options{CountOnly: true}, hops},
		{"all, recorded", Options{}, targets},
		{"few, recorded", Options{}, hops},
	} {
		sub := startSubject(t, prog, args...)
		defs, sink := c.defs, &onwardValues{}
		if !c.o.CountOnly {
			defs = nil
			for _, d := range c.defs {
				defs = append(defs, d+" v=$retval x=$arg1 took=$duration")
			}
		}
		l := engageInto(t, sub.pid(), c.o, sink, defs...)
		for name, n := range map[string]int{"hop": 40, "through": 1, "twice": 1, "indexed": 1, "listed": 1} {
			if jumps, why := optimizedOf(l, name); jumps != n {
				t.Errorf("%s: %s: %d of %d places by a jump: %s", c.name, name, jumps, n, why)
			}
		}
		if got := sub.work(); got != want {
			t.Errorf("%s: probed, the program printed %q, otherwise %q", c.name, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		if sink.bad != "" || (sink.n == 0) != c.o.CountOnly {
			t.Errorf("%s: %d records; wrong: %q", c.name, sink.n, sink.bad)
		}
		of := uint64(5*all - 2*left)
		for name, n := range map[string]uint64{"hop": 40*of + of, "through": of, "twice": of, "indexed": of, "listed": of} {
			if st := l.stat(name); st.Hits != n || st.Missed != 0 {
				t.Errorf("%s: %s: %+v, want %d hits", c.name, name, st, n)
			}
		}
	}
}

// onwardValues is a sink that checks that each call gave three times its argument and one,
// or its argument (labs), and that those which trap took some time: others may take less
// than a step of the clock.
type onwardValues struct {
	n    int
	bad  string
	vals []fetch.Value
}

// Hit implements Sink.
func (s *onwardValues) Hit(h *Hit) error {
	var err error
	if s.vals, err = h.Program.Decode(h.Data, s.vals); err != nil {
		return err
	}
	v, x, took := s.vals[0].Int, s.vals[1].Int, s.vals[2].Int
	if s.n++; v != 3*x+1 && v != x || took == 0 && strings.HasPrefix(h.Func, "hop_") || took > uint64(time.Minute) {
		s.bad = fmt.Sprintf("%s(%d) = %d in %d ns", h.Func, x, v, took)
	}
	return nil
}
