package probe

import (
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// sigtrampNames are the functions of probe_sigtramp.c that return, by the letters by which it counts them.
var sigtrampNames = map[string]string{
	"a": "one", "b": "two", "c": "three", "e": "ends", "r": "returns", "s": "again", "d": "direct", "o": "stays", "i": "inside",
	"n": "nests", "h": "handler", "m": "nested",
}

// sigtrampDefs are return probes on them, and on those that are left by siglongjmp. more is what the definitions record.
func sigtrampDefs(group, more string, many bool) (defs []string) {
	for _, name := range sigtrampNames {
		defs = append(defs, "r:"+group+"/"+name+" "+name+more)
	}
	defs = append(defs, "r:"+group+"/left gone"+more, "r:"+group+"/left lost"+more, "r:"+group+"/leaves leaves"+more)
	if many {
		defs = append(defs, "r:"+group+"/z probe_sigtramp:z_*"+more)
	}
	return defs
}

// checkSigtramp compares the events of a group with what the program has counted.
func checkSigtramp(t *testing.T, l *live, name, group, counted string) {
	t.Helper()
	stats := map[string]Stats{}
	for _, st := range l.s.Stats() {
		stats[st.Event.Group+"/"+st.Event.Name] = st
	}
	for _, x := range strings.Fields(counted)[1:] {
		letter, count, _ := strings.Cut(x, "=")
		n, _ := strconv.ParseUint(count, 10, 64)
		if st := stats[group+"/"+sigtrampNames[letter]]; st.Hits+st.Missed != n {
			t.Errorf("%s: %s: %d hits, %d missed of %d calls", name, sigtrampNames[letter], st.Hits, st.Missed, n)
		}
	}
	if st := stats[group+"/left"]; st.Hits != 0 {
		t.Errorf("%s: %d hits of calls that siglongjmp has left", name, st.Hits)
	}
}

// TestSignalTrampolineReturns: each call that returns to the signal trampoline, which can have no breakpoint, is a hit or
// is missed, whatever jumps it goes on by and however its return is seen.
func TestSignalTrampolineReturns(t *testing.T) {
	flags := []string{"-O2", "-fcf-protection=none"}
	unwinding := append(flags[:2:2], "-Wl,--no-as-needed", "-lgcc_s")
	for _, c := range []struct {
		name  string
		flags []string
		o     Options
		more  string
		many  bool
	}{
		{"few", flags, Options{CountOnly: true}, "", false},
		{"many", flags, Options{CountOnly: true}, "", true},
		{"few, recorded", flags, Options{}, " v=$retval x=$arg2 took=$duration", false},
		{"many, recorded", flags, Options{}, " v=$retval x=$arg2", true},
		{"few, unwinder", unwinding, Options{CountOnly: true}, "", false},
		{"many, unwinder", unwinding, Options{CountOnly: true}, "", true},
		{"few, unwinder, recorded", unwinding, Options{}, " v=$retval x=$arg2", false},
		{"many, unwinder, recorded", unwinding, Options{}, " v=$retval x=$arg2", true},
		{"breakpoints", flags, Options{CountOnly: true, NoOptimize: true}, "", false},
		{"breakpoints, unwinder, recorded", unwinding, Options{NoOptimize: true}, " v=$retval x=$arg2", false},
		{"static", append(flags[:2:2], "-static"), Options{CountOnly: true}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := fixture.Build(t, "probe_sigtramp.c", c.flags...)
			want := plain(t, prog, "8")
			sub := startSubject(t, prog, "8")
			l, _ := engage(t, sub.pid(), c.o, sigtrampDefs("g", c.more, c.many)...)
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			l.finish(sub.pid())
			sub.end()
			checkSigtramp(t, l, c.name, "g", want)
		})
	}
}

// TestSignalTrampolineTables: so it is if calls of the functions are noted in two tables.
func TestSignalTrampolineTables(t *testing.T) {
	for _, flags := range [][]string{{"-O2", "-fcf-protection=none"}, {"-O2", "-fcf-protection=none", "-Wl,--no-as-needed", "-lgcc_s"}} {
		prog := fixture.Build(t, "probe_sigtramp.c", flags...)
		want := plain(t, prog, "8")
		sub := startSubject(t, prog, "8")
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, sigtrampDefs("g", "", false)...)
		if err := l.s.Arm(t.Context(), parseDefs(t, sigtrampDefs("second", "", false)...)); err != nil {
			t.Fatal(err)
		}
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		l.finish(sub.pid())
		sub.end()
		checkSigtramp(t, l, "first table", "g", want)
		checkSigtramp(t, l, "second table", "second", want)
	}
}

// TestSignalTrampolineLeft: kprobe leaves while a call is active that returns by several return trampolines, one of which
// traps.
func TestSignalTrampolineLeft(t *testing.T) {
	prog := fixture.Build(t, "probe_sigtramp.c", "-O2", "-fcf-protection=none")
	all := sigtrampDefs("g", "", false)
	for _, c := range []struct {
		way  string
		defs []string
	}{
		{"srw", all}, {"asrw", all}, {"rw", all}, {"asbrw", all}, {"dw", all},
		{"srw", []string{"r:s again", "r:r returns"}}, // the trapping one is in the slot
		{"asbrw", []string{"r:s again", "r:r returns", "r:b two"}},
	} {
		sub := startSubject(t, prog, "1", c.way)
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, c.defs...)
		sub.line()
		sub.expect("waits")
		l.finish(sub.pid())
		sub.line()
		sub.expect("done")
		sub.end()
	}
}
