package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	err := l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
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

// TestJumpNotes: where functions jump on to another, only calls that take the jump are
// noted, at the jump, and each return is one of all that jumped there: not of calls that
// were left by longjmp, though others come from the same instruction with the same stack
// pointer next.
func TestJumpNotes(t *testing.T) {
	prog := fixture.Build(t, "probe_jumps.c", "-O2", "-pthread", "-fcf-protection=none", "-Wl,--no-as-needed", "-lgcc_s")
	const rounds, threads = 500, 3
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	want := plain(t, prog, args...)
	for _, defs := range [][]string{
		{"r:j probe_jumps:j_*", "r:k probe_jumps:k_*", "r:last last"},
		{"r:j probe_jumps:j_*", "r:k probe_jumps:k_*", "r:last last", "r:again probe_jumps:j_*", "p:entry probe_jumps:j_*"},
		{"r:j probe_jumps:j_*"}, // the others are nobody's
	} {
		sub := startSubject(t, prog, args...)
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, defs...)
		alone := map[string]int{}
		err := l.s.engine.Tracer.Do(func() error {
			for _, tg := range l.s.engine.Targets {
				alone, _ = aloneAtExits(tg)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if alone["j"] != 40 {
			t.Errorf("%v: noted at their jumps: %v", defs, alone)
		}
		if got := sub.work(); got != want {
			t.Errorf("%v: probed, the program printed %q, otherwise %q", defs, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		const each, left = rounds * threads, rounds / 5 * threads
		all := map[string]uint64{"j": 50*each + 2*left, "k": 10 * each, "last": 25*each + 3*left, "again": 50*each + 2*left, "entry": 50*each + 4*left}
		for name, n := range all {
			if !slices.ContainsFunc(defs, func(d string) bool { return strings.Contains(d, ":"+name+" ") }) {
				continue
			}
			if st := l.stat(name); st.Hits != n || st.Missed != 0 {
				t.Errorf("%v: %s: %+v, want %d hits", defs, name, st, n)
			}
		}
	}
}

// TestTaken: functions that others jump to through a pointer count their returns without a note at the entry, and those
// that come by a jump end the calls of all that have jumped. So do those of functions that jump to their own entry. What
// longjmp has left is nobody's, though the next call comes from the same instruction with the same stack pointer.
func TestTaken(t *testing.T) {
	prog := fixture.Build(t, "probe_taken.c", "-O2", "-pthread", "-fcf-protection=none", "-Wl,--no-as-needed", "-lgcc_s")
	args := []string{"500", "3"}
	want := plain(t, prog, args...)
	names := []string{"o", "leaf", "on", "both", "loop", "turn", "pass", "hop", "nil", "last"}
	var returned [10]uint64
	for i, n := range strings.Fields(want)[1:] {
		returned[i], _ = strconv.ParseUint(n, 10, 64)
	}
	defs := []string{"r:o probe_taken:o_*", "r:leaf t_leaf", "r:on t_on", "r:both t_both", "r:loop t_loop", "r:turn t_turn", "r:pass t_pass", "r:hop t_hop", "r:nil t_nil", "r:last last"}
	for _, more := range [][]string{nil, {"r:beside probe_taken:t_*"}, {"p:beside probe_taken:t_*"}} {
		sub := startSubject(t, prog, args...)
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, append(defs, more...)...)
		alone, together := map[string]int{}, 0
		err := l.s.engine.Tracer.Do(func() error {
			for _, tg := range l.s.engine.Targets {
				alone, _ = aloneAtExits(tg)
				together += countingTogether(tg)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if together < 3 { // the returns of leaf, both and last
			t.Errorf("%v: %d returns count and look by one detour", more, together)
		}
		for name, n := range map[string]int{"o": 0, "leaf": 1, "on": 1, "both": 1, "loop": 1, "turn": 0, "pass": 1, "hop": 1, "nil": 1, "last": 1} {
			if jumps, why := optimizedOf(l, name); alone[name] != n || jumps == 0 {
				t.Errorf("%v: %s: %d at the exits alone, %d jumps: %s", more, name, alone[name], jumps, why)
			}
		}
		if got := sub.work(); got != want {
			t.Errorf("%v: probed, the program printed %q, otherwise %q", more, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for i, name := range names {
			if st := l.stat(name); st.Hits != returned[i] || st.Missed != 0 {
				t.Errorf("%v: %s: %+v, want %d hits", more, name, st, returned[i])
			}
		}
	}
}
