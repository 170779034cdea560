package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/tracee"
)

func names(events []*Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Group+"/"+e.Name)
	}
	return out
}

// running waits until Run runs.
func running(t *testing.T, s *Session) {
	t.Helper()
	ok := waitUntil(func() bool {
		on := false
		_ = s.engine.Tracer.Do(func() error { on = s.engine.Running; return nil })
		return on
	})
	if !ok {
		t.Fatal("the session does not run")
	}
}

// TestAddRemove has events come and go before a run and while it goes on.
func TestAddRemove(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	for _, o := range []Options{{}, {NoOptimize: true}, {CountOnly: true}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			o.Log = testLog(t)
			sub := startSubject(t, prog, "work", "1000")
			ctx := context.Background()
			s, err := Attach(ctx, []int{sub.pid()}, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close(ctx) })
			l := collecting(t, s)
			add := func(defs ...string) []*Event {
				t.Helper()
				link, err := s.Add(ctx, parseDefs(t, defs...))
				if err != nil {
					t.Fatal(err)
				}
				return link.Events()
			}
			first := add("p:first work n=$arg1", "p:gone work", "p:first libc:abort n=$arg1")
			if got := names(first); !slices.Equal(got, []string{"kprobes/first", "kprobes/gone"}) {
				t.Fatalf("added %v", got)
			}
			if err := s.Remove(ctx, first[1]); err != nil {
				t.Fatal(err)
			}
			l.run()
			running(t, s)
			later := add("r:out work v=$retval", "p:same work n=$arg1", "p:inside work+0x4")
			seen := openedLive(t, sub.pid())
			for _, e := range seen.Stats() {
				if e.Event.Name == "gone" {
					t.Error("an event that was removed is seen from beside")
				}
			}
			sub.work()
			want := uint64(1000)
			checkPlaces(t, s, map[string]uint64{"first work": want, "first abort": 0, "gone work": 0, "out work": want, "same work": want, "inside work+0x4": want})
			if err := s.Remove(ctx, later...); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"first", "out", "same"} {
				st := l.stat(name)
				if st.Hits != want || st.Recorded != want {
					t.Errorf("%s: %d hits, %d recorded when it was removed, want %d", name, st.Hits, st.Recorded, want)
				}
			}
			checkPlaces(t, s, map[string]uint64{"first work": want, "first abort": 0, "gone work": 0, "out work": want, "same work": want, "inside work+0x4": want})
			if err := s.Remove(ctx, later[0]); !errors.Is(err, ErrNoEvent) {
				t.Errorf("removed again: %v", err)
			}
			if got := names(s.Events()); !slices.Equal(got, []string{"kprobes/first"}) {
				t.Errorf("events %v", got)
			}
			_ = s.engine.Tracer.Do(func() error {
				for _, tg := range s.engine.Targets {
					if n := tg.Retired.Len(); n != 0 {
						t.Errorf("%d removed sets are still kept", n)
					}
					if got := len(tg.Feed.Ids) - len(tg.Feed.Spare); got != 2 {
						t.Errorf("%d numbers in use, want 2", got)
					}
					for _, p := range tg.Feed.Ids {
						if p != nil && p.Ev.Name == "first" && p.Where.Func.Symbol.Name == "work" && p.Optimized == o.NoOptimize {
							t.Errorf("first is %v (%s)", p.Tactic, p.Why)
						}
					}
				}
				return nil
			})
			if err := seen.Refresh(); err != nil || len(seen.Stats()) != 1 {
				t.Errorf("from beside there are %d events, %v", len(seen.Stats()), err)
			}
			l.finish(sub.pid())
			sub.end()
		})
	}
}

// checkPlaces compares the hits of places, by "EVENT PLACE".
func checkPlaces(t *testing.T, s *Session, want map[string]uint64) {
	t.Helper()
	got := map[string]uint64{}
	for _, st := range s.PlaceStats() {
		got[st.Event.Name+" "+st.Place] = st.Hits
	}
	if !maps.Equal(got, want) {
		t.Errorf("hits of places: %v, want %v", got, want)
	}
}

// TestAddAgain has an event come again: it goes on counting.
func TestAddAgain(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "recurse", "300000", "3")
	l := attach(t, sub.pid(), Options{}, "p:always recurse")
	ctx := context.Background()
	for round := range 50 {
		link, err := l.s.Add(ctx, parseDefs(t, "p:again recurse n=$arg1", "r:back recurse"))
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			sub.line() // it may be done before the second
			for end := time.Now().Add(time.Minute); l.stat("again").Hits == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Millisecond)
		if err := link.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	sub.expect("done")
	l.finish(sub.pid())
	stats := l.s.Stats()
	if len(stats) != 3 {
		t.Errorf("%d events", len(stats))
	}
	checkPlaces(t, l.s, map[string]uint64{
		"always recurse": l.stat("always").Hits, "again recurse": l.stat("again").Hits, "back recurse": l.stat("back").Hits,
	})
	if st := l.stat("again"); st.Hits == 0 || st.Hits != st.Recorded+st.Lost || st.Places != 0 {
		t.Errorf("again: %+v", st)
	}
	for _, e := range l.s.engine.Events.All() {
		for n := 0; e.Before != nil; e, n = e.Before, n+1 {
			if n > 1 {
				t.Fatal("events that were removed pile up")
			}
		}
	}
	sub.end()
}

// TestAddAllOrNone adds good definitions with one that is wrong.
func TestAddAllOrNone(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	a, b := startSubject(t, prog, "work", "10"), startSubject(t, prog, "work", "10")
	ctx := context.Background()
	s, err := Attach(ctx, []int{a.pid(), b.pid()}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(ctx) })
	if _, err := s.Add(ctx, parseDefs(t, "p:keep work")); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"p:x no_such_function", "p:x work+1", "p:keep work n=$arg1", "p:x work v=@no_such_variable"} {
		_, err := s.Add(ctx, parseDefs(t, "p:good work n=$arg1", bad, "p:keep libc:abort"))
		var def *DefError
		if !errors.As(err, &def) || !strings.Contains(def.Def.Text, strings.Fields(bad)[1]) {
			t.Errorf("%s: %v", bad, err)
		}
		if got := names(s.Events()); !slices.Equal(got, []string{"kprobes/keep"}) {
			t.Errorf("%s: events %v", bad, got)
		}
		for _, st := range s.Stats() {
			if st.Event.Name != "keep" || st.Places != 2 {
				t.Errorf("%s: %s at %d places", bad, st.Event.Name, st.Places)
			}
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []*subject{a, b} {
		checkClean(t, sub.pid())
		sub.work()
		sub.end()
	}
	if _, err := s.Add(ctx, parseDefs(t, "p:keep work")); !errors.Is(err, ErrClosed) && !errors.Is(err, tracee.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestEnable switches events off and on again.
func TestEnable(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "1000")
	l := attach(t, sub.pid(), Options{}, "p:a work", "p:b work", "r:c work")
	ev := l.s.Events()
	if err := l.s.Enable(false, ev[0], ev[2]); err != nil {
		t.Fatal(err)
	}
	if err := l.s.Enable(true, ev[0], &Event{Group: "kprobes", Name: "a"}); !errors.Is(err, ErrNoEvent) {
		t.Errorf("an event of another session: %v", err)
	}
	// A place that comes to an event that is off is off, too.
	if _, err := l.s.Add(context.Background(), parseDefs(t, "p:a libc:abort")); err != nil {
		t.Fatal(err)
	}
	for _, p := range openedLive(t, sub.pid()).Probes() {
		if p.Disabled != (p.Event != "b") {
			t.Errorf("%s at %v: disabled is %v", p.Event, p.Addr, p.Disabled)
		}
	}
	if err := l.s.Enable(true, ev[2]); err != nil {
		t.Fatal(err)
	}
	sub.work()
	for name, want := range map[string]uint64{"a": 0, "b": 1000, "c": 1000} {
		if st := l.stat(name); st.Hits != want || st.Disabled != (name == "a") {
			t.Errorf("%s: %d hits, disabled %v", name, st.Hits, st.Disabled)
		}
	}
	l.finish(sub.pid())
	sub.end()
}

// TestHazardW5Changes has random sets of overlapping probes come, go, and be
// switched off and on, while 16 threads run over them and check every call.
// Probes that stay, at the same places and inside the same jumps, count every
// call.
func TestHazardW5Changes(t *testing.T) {
	t.Run("jumps", func(t *testing.T) { changed(t, Options{CountOnly: true}, full(150, 100_000)) })
	t.Run("breakpoints", func(t *testing.T) { changed(t, Options{CountOnly: true, NoOptimize: true}, full(100, 100_000)) })
	t.Run("records", func(t *testing.T) { changed(t, Options{}, full(100, 20_000)) })
}

func changed(t *testing.T, o Options, rounds int) {
	t.Helper()
	sub := startStorm(t, "16")
	stay := map[string]int{"s0": 0, "s1": 1, "s2": 2, "s3": 3, "s4": 4, "s5": 5, "s6": 6, "m0": 0, "m5": 5}
	l, _ := engage(t, sub.pid(), o, "p:s0 f0", "p:s1 f1 a=$arg1 if a != 5", "p:s2 f2", "p:s3 f3", "p:s4 f4", "p:s5 f5", "p:s6 f6", "p:m0 f0+2", "p:m5 f5+1")
	before := tacticsNow(l.s)
	pool := []string{
		"p:a%d f0", "p:a%d f0+1", "p:a%d f0+2 x=%%ax", "p:a%d f0+3", "p:a%d f0+4", "p:a%d f1", "p:a%d f1+5", "p:a%d f2", "p:a%d f2+2",
		"p:a%d f3", "r:a%d f3 v=$retval", "p:a%d f4+1", "r:a%d f4", "p:a%d f5+1", "p:a%d f5+4", "p:a%d f5+3", "p:a%d f6+1", "p:a%d f4 x=%%ax if x & 1",
	}
	sub.line()
	rng := rand.New(rand.NewPCG(7, 11))
	ctx := t.Context()
	var there []*Event
	start, came, made := time.Now(), 0, 0
	for i := range rounds {
		if end, ok := t.Deadline(); ok && time.Until(end) < patient {
			break // what was done is checked all the same
		}
		made++
		switch {
		case len(there) < 4 || rng.IntN(3) == 0 && len(there) < 40:
			var defs []string
			for k := range 1 + rng.IntN(6) {
				defs = append(defs, fmt.Sprintf(pool[rng.IntN(len(pool))], i*10+k))
			}
			link, err := l.s.Add(ctx, parseDefs(t, defs...))
			if err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			there = append(there, link.Events()...)
			came += len(link.Events())
		case rng.IntN(3) == 0:
			if err := l.s.Enable(rng.IntN(2) == 0, there[rng.IntN(len(there))], there[rng.IntN(len(there))]); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		default:
			rng.Shuffle(len(there), func(a, b int) { there[a], there[b] = there[b], there[a] })
			n := 1 + rng.IntN(len(there))
			if err := l.s.Remove(ctx, there[:n]...); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			there = there[n:]
		}
	}
	if err := l.s.Remove(ctx, there...); err != nil {
		t.Fatal(err)
	}
	span := time.Since(start)
	jumps := tacticsNow(l.s)
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	calls := uint64(0)
	for _, n := range sub.calls {
		calls += n
	}
	t.Logf("%d of %d changes in %v, %d probes came and went, %d calls", made, rounds, span, came, calls)
	if made < min(rounds, 100) {
		t.Errorf("the time was enough for %d changes", made)
	}
	for name, f := range stay {
		if st := l.stat(name); st.Hits != sub.calls[f] {
			t.Errorf("%s: %d hits of %d calls", name, st.Hits, sub.calls[f])
		}
		if before[name] && !jumps[name] {
			t.Errorf("%s was a jump before and is none after", name)
		}
	}
}
