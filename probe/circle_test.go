package probe

import (
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestCircle: where functions jump to one another in a circle, each call is a hit if hits are only counted. Otherwise so
// many of each function may wait, and those beyond are missed. Calls that longjmp has left are neither.
func TestCircle(t *testing.T) {
	const waiting = "16" // detour.mostBack
	prog := fixture.Build(t, "probe_circle.c", "-O2", "-fcf-protection=none", "-Wl,--no-as-needed", "-lgcc_s")
	want := plain(t, prog, "50", waiting)
	var n [8]uint64
	for i, x := range strings.Fields(want)[1:] {
		n[i], _ = strconv.ParseUint(x, 10, 64)
	}
	few := []string{"r:ping ping", "r:pong pong", "r:ring probe_circle:r_*"}
	many := append(few[:3:3], "r:z probe_circle:z_*")
	for _, c := range []struct {
		name string
		o    Options
		defs []string
		more string // what the definitions record besides
	}{
		{"many", Options{CountOnly: true}, many, ""},
		{"few", Options{CountOnly: true}, few, ""},
		{"twice", Options{CountOnly: true}, append(many[:4:4], "r:again ping"), ""},
		{"many, recorded", Options{}, many, " v=$retval x=$arg1"},
		{"few, recorded", Options{}, few, " v=$retval x=$arg1"},
	} {
		var defs []string
		for _, d := range c.defs {
			defs = append(defs, d+c.more)
		}
		sub := startSubject(t, prog, "50", waiting)
		l, _ := engage(t, sub.pid(), c.o, defs...)
		for _, name := range []string{"ping", "pong"} {
			if jumps, why := optimizedOf(l, name); jumps != 1 {
				t.Errorf("%s: %s is no jump: %s", c.name, name, why)
			}
		}
		if got := sub.work(); got != want {
			t.Errorf("%s: probed, the program printed %q, otherwise %q", c.name, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for i, name := range []string{"ping", "pong", "ring", "z", "again"} {
			if i >= len(defs) {
				break
			}
			st := l.stat(name)
			calls, missed := n[i], uint64(0)
			switch {
			case name == "again":
				calls = n[0]
			case c.more != "" && name == "ring":
				missed = st.Missed // a table has no room for sixteen of ten functions
				if st.Hits < calls/10 {
					t.Errorf("%s: only %d hits of %d calls in a large circle", c.name, st.Hits, calls)
				}
			case c.more != "" && name != "z":
				missed = n[4+i]
			}
			if st.Hits+st.Missed != calls || st.Missed != missed {
				t.Errorf("%s: %s: %d hits, %d missed, want %d and %d", c.name, name, st.Hits, st.Missed, calls-missed, missed)
			}
		}
	}
}

// TestCircleBreakpoints: if breakpoints follow the calls, each is a hit if hits are only counted, however few instances there
// are.
func TestCircleBreakpoints(t *testing.T) {
	prog := fixture.Build(t, "probe_circle.c", "-O2", "-fcf-protection=none", "-Wl,--no-as-needed", "-lgcc_s")
	want := plain(t, prog, "1", "0")
	sub := startSubject(t, prog, "1", "0")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true, NoOptimize: true}, "r:ping ping", "r:pong pong", "r:ring probe_circle:r_*")
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	for i, name := range []string{"ping", "pong", "ring"} {
		calls, _ := strconv.ParseUint(strings.Fields(want)[1+i], 10, 64)
		if st := l.stat(name); st.Hits != calls || st.Missed != 0 {
			t.Errorf("%s: %d hits, %d missed, want %d and 0", name, st.Hits, st.Missed, calls)
		}
	}
}

// TestCircleApart: no call is lost either if no other function of the circle is probed, or the number of instances is given.
func TestCircleApart(t *testing.T) {
	prog := fixture.Build(t, "probe_circle.c", "-O2", "-fcf-protection=none", "-Wl,--no-as-needed", "-lgcc_s")
	const rounds = "5"
	want := plain(t, prog, rounds, "0")
	n := map[string]uint64{}
	n["ping"], _ = strconv.ParseUint(strings.Fields(want)[1], 10, 64)
	for _, deep := range []uint64{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 1020} {
		n["ring"] += 5 * ((deep-3)/10 + 1)
	}
	few := []string{"r:ping ping", "r:ring r_3"}
	numbers := []string{"r5:ping ping", "r5:ring r_3"}
	const record = " v=$retval x=$arg1"
	for _, c := range []struct {
		name   string
		o      Options
		defs   []string
		more   string // what the definitions record besides
		misses bool
	}{
		{"counted", Options{CountOnly: true}, few, "", false},
		{"counted, many", Options{CountOnly: true}, append(few[:2:2], "r:z probe_circle:z_*"), "", false},
		{"counted, numbers", Options{CountOnly: true}, numbers, "", true},
		{"counted, one number", Options{CountOnly: true}, append(numbers[:2:2], "r:pong pong"), "", true},
		{"counted, all numbers", Options{CountOnly: true}, append(numbers[:2:2], "r5:pong pong"), "", true},
		{"counted, active", Options{CountOnly: true, Active: 20}, few, "", true},
		{"recorded", Options{}, few, record, true},
		{"recorded, many", Options{}, append(few[:2:2], "r:z probe_circle:z_*"), record, true},
		{"recorded, numbers", Options{}, numbers, record, true},
		{"recorded, one number", Options{}, append(numbers[:2:2], "r:pong pong"), record, true},
		{"breakpoints", Options{CountOnly: true, NoOptimize: true}, few, "", false},
	} {
		var defs []string
		for _, d := range c.defs {
			defs = append(defs, d+c.more)
		}
		sub := startSubject(t, prog, rounds, "0")
		l, _ := engage(t, sub.pid(), c.o, defs...)
		for name := range n {
			if jumps, why := optimizedOf(l, name); jumps != 1 && !c.o.NoOptimize {
				t.Errorf("%s: %s is no jump: %s", c.name, name, why)
			}
		}
		if got := sub.work(); got != want {
			t.Errorf("%s: probed, the program printed %q, otherwise %q", c.name, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for name, n := range n {
			if st := l.stat(name); st.Hits+st.Missed != n || st.Missed != 0 && !c.misses || st.Hits == 0 {
				t.Errorf("%s: %s: %d hits, %d missed of %d calls", c.name, name, st.Hits, st.Missed, n)
			}
		}
	}
}
