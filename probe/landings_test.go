package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestLandings: counted calls that jump to code made at run time, or to functions that nobody
// probes, are seen again where they return to: each once, also where arguments are taken off the
// stack, or that code jumps on to functions that are probed, and none that was left. Only the first
// call of an address stops its thread.
func TestLandings(t *testing.T) {
	prog := fixture.Build(t, "probe_landings.cc", "-O2", "-pthread")
	const rounds, threads = 3000, 2
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	parse := func(line string) (sum, stops int64) {
		if _, err := fmt.Sscanf(line, "done %d %d", &sum, &stops); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return sum, stops
	}
	sum, _ := parse(plain(t, prog, args...))
	defs := []string{"r:hop probe_landings:hop_*", "r:twice twice", "r:carries carries", "r:carried carried"}
	const all, left = rounds * threads, rounds / 3 * threads
	for _, breaks := range []bool{false, true} {
		sub := startSubject(t, prog, args...)
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, defs...)
		if breaks { // beside handlers the tracer does what the detours would
			for _, off := range []uint64{8, 13} {
				at := &Kprobe{Symbol: "Builtins_pushes", Offset: off, PreHandler: func(*Kprobe, *Regs) bool { return false }}
				if err := l.s.Register(t.Context(), at); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, n := parse(sub.work())
		l.finish(sub.pid())
		sub.end()
		if got != sum {
			t.Errorf("probed, the program's sum is %d, otherwise %d", got, sum)
		}
		if n > 100*threads && !breaks {
			t.Errorf("the threads have waited %d times", n)
		}
		for name, want := range map[string]uint64{"twice": all, "hop": 5*all - left, "carries": all, "carried": all} {
			if st := l.stat(name); st.Hits != want || st.Missed != 0 {
				t.Errorf("%s: %+v, want %d hits", name, st, want)
			}
		}
	}
}

// TestLandingsFew: so are the calls of single probes. Where they can't be, because code made at run time has
// called, breakpoints follow them if there are few probes; of many they are missed.
func TestLandingsFew(t *testing.T) {
	prog := fixture.Build(t, "probe_landings.cc", "-O2", "-pthread")
	const rounds, threads = 300, 2
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads), "made"}
	const all, left = rounds * threads, rounds / 3 * threads
	parse := func(line string) (sum, stops int64) {
		if _, err := fmt.Sscanf(line, "done %d %d", &sum, &stops); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return sum, stops
	}
	sum, _ := parse(plain(t, prog, args...))
	single := []string{"r:pops hop_10", "r:twice twice", "r:leaves hop_11", "r:adds hop_12", "r:labs hop_13", "r:via hop_14", "r:carries carries"}
	for _, c := range []struct {
		defs         []string
		hits, missed uint64
		stops        int64
	}{
		{single, 0, 0, 100 * threads},
		{append(single[:len(single):len(single)], "r:made hop_15"), all, 0, 100*threads + 40*all},
		{append(single[:len(single):len(single)], "r:made hop_15", "r:others probe_landings:hop_[234]*"), 0, all, 100*threads + 40*all},
	} {
		sub := startSubject(t, prog, args...)
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, c.defs...)
		for _, d := range c.defs {
			name := d[2:strings.Index(d, " ")]
			if _, why := optimizedOf(l, name); why != "" {
				t.Errorf("%s is no jump: %s", d, why)
			}
		}
		want := map[string]uint64{"pops": all, "twice": all, "leaves": all - left, "adds": all, "labs": all, "via": all, "carries": all}
		if len(c.defs) > len(single) { // they note calls in a table of their own
			if _, err := l.s.Add(t.Context(), parseDefs(t, "r:later hop_13", "r:last carries")); err != nil {
				t.Fatal(err)
			}
			want["later"], want["last"] = all, all
		}
		got, n := parse(sub.work())
		l.finish(sub.pid())
		sub.end()
		if got != sum {
			t.Errorf("probed, the program's sum is %d, otherwise %d", got, sum)
		}
		if n > c.stops {
			t.Errorf("with %d definitions the threads have waited %d times", len(c.defs), n)
		}
		for name, want := range want {
			if st := l.stat(name); st.Hits != want || st.Missed != 0 {
				t.Errorf("with %d definitions, %s: %+v, want %d hits", len(c.defs), name, st, want)
			}
		}
		if len(c.defs) == len(single) {
			continue
		}
		if st := l.stat("made"); st.Hits != c.hits || st.Missed != c.missed {
			t.Errorf("with %d definitions, called by code made at run time: %+v, want %d hits, %d missed", len(c.defs), st, c.hits, c.missed)
		}
	}
}

// TestLandingsLeft: a call that an exception has left is no hit, although another thread has its return address watched
// before a later call of the same slot returns there.
func TestLandingsLeft(t *testing.T) {
	prog := fixture.Build(t, "probe_leftlanding.cc", "-O2", "-pthread")
	for _, breaks := range []bool{false, true} {
		sub := startSubject(t, prog)
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "r:jumps jumps", "r:throws throws")
		if breaks { // beside handlers the tracer does what the detours would
			for _, off := range []uint64{4, 6} {
				at := &Kprobe{Symbol: "site", Offset: off, PreHandler: func(*Kprobe, *Regs) bool { return false }}
				if err := l.s.Register(t.Context(), at); err != nil {
					t.Fatal(err)
				}
			}
		}
		sub.work()
		l.finish(sub.pid())
		sub.end()
		for name, want := range map[string]uint64{"jumps": 1, "throws": 0} {
			if st := l.stat(name); st.Hits != want || st.Missed != 0 {
				t.Errorf("with breakpoints: %v, %s: %+v, want %d hits", breaks, name, st, want)
			}
		}
	}
}

// TestLandingsChange: probes whose calls are seen where they return to come and go while the
// program makes such calls, and so do probes beside the landings; the program doesn't notice,
// and landings go with the last probe that needs them.
func TestLandingsChange(t *testing.T) {
	prog := fixture.Build(t, "probe_landings.cc", "-O2", "-pthread")
	args := []string{fmt.Sprint(full(3_000_000, 30_000_000)), "2"}
	var sum, got, stops int64
	if _, err := fmt.Sscanf(plain(t, prog, args...), "done %d %d", &sum, &stops); err != nil {
		t.Fatal(err)
	}
	sub := startSubject(t, prog, args...)
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:works works")
	over := make(chan string)
	go func() {
		defer close(over) // if it dies
		over <- sub.work()
	}()
	rounds, hits := 0, uint64(0)
	for done := false; !done; rounds++ {
		link, err := l.s.Add(t.Context(), parseDefs(t, "r:hop probe_landings:hop_*", "r:twice twice"))
		if err != nil {
			t.Fatal(err)
		}
		few, err := l.s.Add(t.Context(), parseDefs(t, "r:few hop_13", "r:single twice"))
		if err != nil {
			t.Fatal(err)
		}
		beside, err := l.s.Add(t.Context(), parseDefs(t, "p:call Builtins_pushes+8", "p:back Builtins_pushes+13", "p:behind plainly+6"))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case line := <-over:
			if _, err := fmt.Sscanf(line, "done %d %d", &got, &stops); err != nil {
				t.Fatalf("%q: %v; the program: %s, killed: %v", line, err, endOf(sub.pid()), l.s.killed)
			}
			done = true
		case <-time.After(time.Duration(1+rounds%10) * time.Millisecond):
		}
		links := [][]*Link{{link, beside, few}, {beside, few, link}, {few, link, beside}}[rounds%3]
		for _, st := range append(link.Stats(), few.Stats()...) {
			hits += st.Hits
		}
		for _, x := range links {
			if err := x.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := landingsOf(l); n != 0 {
			t.Fatalf("%d landings are left", n)
		}
	}
	l.finish(sub.pid())
	sub.end()
	if got != sum || rounds < 1 {
		t.Errorf("the program's sum is %d, otherwise %d, after %d rounds with %d hits", got, sum, rounds, hits)
	}
}
