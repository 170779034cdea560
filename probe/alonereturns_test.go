package probe

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestAloneReturns: where the returns of many functions are counted and nothing else,
// each that is entered at its start and left by its own returns has no patch at its entry,
// and its returns are counted exactly. A function into whose midst another's code comes
// is counted by its own calls.
func TestAloneReturns(t *testing.T) {
	prog := fixture.Build(t, "probe_alone.c", "-O2", "-fcf-protection=none")
	const rounds = 500
	want := plain(t, prog, "500")
	sub := startSubject(t, prog, "500")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "r:a probe_alone:a_*", "r:entered entered", "r:comes comes", "r:parted parted", "p:entry probe_alone:a_1?")
	for name, n := range map[string]int{"a": 40, "entered": 1, "comes": 1, "parted": 1, "entry": 10} {
		if jumps, why := optimizedOf(l, name); jumps != n {
			t.Errorf("%s: %d of %d places by a jump: %s", name, jumps, n, why)
		}
	}
	alone := map[string]int{}
	err := l.s.tracer.Do(func() error {
		for _, tg := range l.s.targets {
			byEvent, patched := aloneAtExits(tg)
			for name, n := range byEvent {
				alone[name] += n
			}
			if len(patched) > 0 {
				t.Errorf("entries are patched: %v", patched)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if alone["a"] != 40 || alone["parted"] != 1 || alone["entered"] != 0 || alone["comes"] != 0 {
		t.Errorf("counted at their returns alone: %v", alone)
	}
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	for name, n := range map[string]uint64{"a": 40 * rounds, "entered": rounds, "comes": 2 * rounds, "parted": rounds, "entry": 10 * rounds} {
		if st := l.stat(name); st.Hits != n || st.Missed != 0 {
			t.Errorf("%s: %+v, want %d hits", name, st, n)
		}
	}
}
