package probe

import (
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/detour"
	"kprobe/probe/engine"
)

// TestSpread: where the calls of several threads are noted is chosen by these threads' stacks.
func TestSpread(t *testing.T) {
	for _, threads := range []string{"0", "3"} {
		sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), threads)
		l := attach(t, sub.pid(), Options{}, busyShared...)
		onTracer(t, l, func(tg *engine.Target) error {
			stacks, own := tg.Params.Stacks, 0
			want := detour.Spread(stacks)
			if (len(stacks) > 1) != (threads == "3") || (want != 0) != (threads == "3") {
				t.Errorf("%s threads besides the first: stacks %#x, factor %d", threads, stacks, want)
			}
			for _, x := range tg.ExitProbes {
				if x.Calls().Common || x.Calls().Count > 64 {
					continue
				}
				if own++; x.Calls().Factor != want {
					t.Errorf("%s threads besides the first: a table has the factor %d, want %d", threads, x.Calls().Factor, want)
				}
			}
			if own == 0 {
				t.Error("no probe has a small table")
			}
			return nil
		})
		l.finish(sub.pid())
		sub.work()
		sub.end()
	}
}
