package probe

import (
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
)

// TestHazardP56 follows calls of a function of which no exit is known, by a breakpoint at its
// entry, and those of one that jumps to that entry, whose jumps would be there: what is
// in the text is undone, whoever leaves.
func TestHazardP56(t *testing.T) {
	prog := fixture.Build(t, "no_exit.c", "-O2", "-Wl,--no-as-needed", "-lgcc_s")
	for _, defs := range [][]string{{"r:a falls", "r:b jumps"}, {"r:b jumps", "r:a falls"}, {"r:b jumps", "p:c falls", "r:a falls"}} {
		sub := startSubject(t, prog)
		l := attach(t, sub.pid(), Options{}, defs...)
		onTracer(t, l, func(tg *engine.Target) error {
			if list := breakpointsUnderJumps(tg); len(list) > 0 {
				t.Errorf("%v: there are breakpoints under jumps at %v", defs, list)
			}
			return nil
		})
		for _, ev := range []string{"a", "b"} {
			had := l.stat(ev).Hits
			if !waitUntil(func() bool { return l.stat(ev).Hits > had }) {
				t.Errorf("%v: %s has no hits", defs, ev)
			}
		}
		l.finish(sub.pid())
		if got := sub.work(); got != "done 0" {
			t.Errorf("the program printed %q, want no result wrong", got)
		}
		sub.end()
	}
}
