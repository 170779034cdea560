package probe

import (
	"slices"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/memory"
	"kprobe/symbols"
)

// givesBack waits until nothing of removed probes is left in the target.
func givesBack(t *testing.T, l *live) {
	t.Helper()
	var left string
	if !waitUntil(func() bool {
		onTracer(t, l, func(tg *engine.Target) error {
			tg.Reap(t.Context())
			left = kept(tg)
			return nil
		})
		return left == keptNothing
	}) {
		t.Fatalf("removed, and still there are %s", left)
	}
}

// TestReturnsGiveBack places return probes of return trampolines and of exits, in several
// batches, and removes them in any order, while their functions are called: all of
// their memory is unmapped, and none that is still needed.
func TestReturnsGiveBack(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "2")
	l := attach(t, sub.pid(), Options{})
	batches := [][]string{
		{"r:work work v=$retval", "p:in work", "r:shared libc:strlen v=$retval"},
		{"r300:recurse recurse v=$retval n=$arg1"},
		{"r:text text v=$retval n=$arg1", "r64:table table v=$retval"},
	}
	for round, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}} {
		var mapped []*memory.Arena
		links := make([]*Link, len(batches))
		for i, b := range batches {
			var err error
			if links[i], err = l.s.Add(t.Context(), parseDefs(t, b...)); err != nil {
				t.Fatal(err)
			}
		}
		onTracer(t, l, func(tg *engine.Target) error { mapped = slices.Clone(tg.Area.Pools); return nil })
		if len(mapped) < len(batches) {
			t.Fatalf("%d batches of instances", len(mapped))
		}
		for _, i := range order {
			if err := links[i].Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i == 1 || i != order[0] {
				continue
			}
			before := l.stat("recurse").Hits
			if !waitUntil(func() bool { return l.stat("recurse").Hits > before+1000 }) {
				t.Fatal("the probes that stay see nothing any more")
			}
		}
		givesBack(t, l)
		maps, err := symbols.ReadMaps(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range mapped {
			if slices.ContainsFunc(maps, func(m symbols.Mapping) bool { return m.Start < p.End() && p.Start < m.End }) {
				t.Errorf("round %d: %v-%v is still mapped", round, p.Start, p.End())
			}
		}
	}
	l.finish(sub.pid())
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// TestRemoveRedirected removes return probes whose exits have become breakpoints
// that lead into their detours: all goes, and what is placed next at these
// functions counts right.
func TestRemoveRedirected(t *testing.T) {
	prog := fixture.Build(t, "probe_exits.cc", "-O2", "-pthread")
	args := []string{"600", "4"}
	printed := plain(t, prog, args...)
	sub := startSubject(t, prog, args...)
	l := engageInto(t, sub.pid(), Options{}, newWays(), exitDefs("")...)
	turned := 0
	onTracer(t, l, func(tg *engine.Target) error {
		for _, p := range jumpsIn(tg) {
			if p.Armed && ofExits(p, "") { // one may have made way with another
				turned++
				if err := tg.Unoptimize(t.Context(), p); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if turned < len(exitWays) {
		t.Fatalf("%d patches of exits", turned)
	}
	sub.line()
	if !waitUntil(func() bool { return l.stat("sw").Hits > 100 }) {
		t.Fatal("no hit")
	}
	// One first, which shares returns with others.
	for _, names := range [][]string{{"tc"}, exitWays} {
		var going []*Event
		for _, e := range l.s.Events() {
			if slices.Contains(names, e.Name) {
				going = append(going, e)
			}
		}
		if err := l.s.Remove(t.Context(), going...); err != nil {
			t.Fatal(err)
		}
	}
	givesBack(t, l)
	if got := sub.expect("done"); got != printed {
		t.Errorf("probed, the program printed %q, otherwise %q", got, printed)
	}
	l.finish(sub.pid())
	sub.end()
}
