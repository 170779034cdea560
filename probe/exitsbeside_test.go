package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestExitsBeside: functions whose returns lie side by side, each with a jump of the same
// bytes, or have less padding than a jump takes. All are jumps, with values and counted, and
// each return is seen once, also while a probe of one of these returns comes and goes.
func TestExitsBeside(t *testing.T) {
	prog := fixture.Build(t, "exits_beside.c", "-O1", "-pthread")
	const rounds, threads = 20000, 3
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	want := plain(t, prog, args...)
	names := []string{"three", "before", "padded"}
	for _, o := range []Options{{}, {CountOnly: true}} {
		sub := startSubject(t, prog, args...)
		sink := &returned{n: map[string]uint64{}}
		var defs []string
		for _, name := range names {
			defs = append(defs, "r:"+name+" "+name+" v=$retval x=$arg1")
		}
		l := engageInto(t, sub.pid(), o, sink, defs...)
		jumps := func(when string) {
			for _, name := range names {
				if n, why := optimizedOf(l, name); n != 1 {
					t.Errorf("%s %s is no jump: %s", name, when, why)
				}
			}
		}
		jumps("at first")
		for range 3 { // the second return of three, and what leads to that of before
			link, err := l.s.Add(t.Context(), parseDefs(t, "p:second three+23", "p:jcc before+12"))
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
			if st := l.stat(name); st.Hits != rounds*threads || st.Missed != 0 || !o.CountOnly && sink.n[name]+st.Lost != st.Hits {
				t.Errorf("%s: %+v, %d records, want %d", name, st, sink.n[name], rounds*threads)
			}
		}
		if sink.bad != 0 {
			t.Errorf("%d returns with a wrong value", sink.bad)
		}
	}
}

// TestExitsEither: a function jumps to one that two libraries define and the loader has not
// bound yet. It is a jump, and each return is seen, of whichever it will be; what is left by
// an exception has none.
func TestExitsEither(t *testing.T) {
	lib := func(flags ...string) string {
		return fixture.Build(t, "exits_either.cc", append([]string{"-O2", "-shared", "-fPIC", "-Wl,-z,lazy"}, flags...)...)
	}
	asks, first, second := lib("-DASKS"), lib("-DEITHER=1"), lib("-DEITHER=2")
	const rounds = 5000
	for _, libs := range [][]string{{first, second}, {second, first}} {
		prog := fixture.Build(t, "exits_either.cc", append([]string{"-O2", "-Wl,-z,lazy", "-Wl,--no-as-needed", asks}, libs...)...)
		want := plain(t, prog, fmt.Sprint(rounds))
		for _, o := range []Options{{}, {CountOnly: true}} {
			sub := startSubject(t, prog, fmt.Sprint(rounds))
			sink := &returned{n: map[string]uint64{}}
			l := engageInto(t, sub.pid(), o, sink, "r:asks asks v=$retval x=$arg1:s64")
			if n, why := optimizedOf(l, "asks"); n != 1 {
				t.Errorf("it is no jump: %s", why)
			}
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			l.finish(sub.pid())
			sub.end()
			if st := l.stat("asks"); st.Hits != rounds || st.Missed != 0 || !o.CountOnly && sink.n["asks"]+st.Lost != rounds || sink.bad != 0 {
				t.Errorf("%+v, %d records, %d bad, want %d", st, sink.n["asks"], sink.bad, rounds)
			}
		}
	}
}
