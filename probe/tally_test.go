package probe

import (
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// manyCounted are enough probes for a tally. It lies near libc's: detours of the program
// call it from far.
var manyCounted = []string{"p:in probe_forever:*", "r:out probe_forever:*", "p:more libc:*printf*", "r:back libc:*printf*"}

// TestTallyCode finds threads in a tally and tells where they came from; signals meet
// them there; the probes are taken out from under them, and it is unmapped: the program
// notices nothing.
func TestTallyCode(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_hops.c", "-O2", "-pthread"), "3")
	for round := range full(2, 30) {
		l := attach(t, sub.pid(), Options{CountOnly: true})
		link, err := l.s.Add(t.Context(), parseDefs(t, "p:in probe_hops:*", "r:out probe_hops:*", "p:more libc:*printf*", "r:back libc:*printf*"))
		if err != nil {
			t.Fatal(err)
		}
		var laid []symbols.Addr
		onTracer(t, l, func(tg *engine.Target) error {
			for _, x := range tg.Area.Tallies {
				laid = append(laid, symbols.Addr(x.Base))
			}
			return nil
		})
		if len(laid) != 1 {
			t.Fatalf("%d tallies are laid", len(laid))
		}
		found := 0
		if !waitUntil(func() bool {
			n, left := sharing(t, l, sub.pid())
			found += n
			onTracer(t, l, func(tg *engine.Target) error {
				return tracee.IgnoreLate(tg.WithStopped(t.Context(), func(stopped []*tracee.Thread) error {
					for _, th := range stopped {
						// A stop and the way on; its default action is nothing.
						if regs, err := th.Regs(); err == nil && tg.InShared(symbols.Addr(regs.Rip)) {
							if err := unix.Tgkill(sub.pid(), th.TID(), unix.SIGURG); err != nil {
								return err
							}
						}
					}
					return nil
				}))
			})
			return t.Failed() || left != n || found >= 20
		}) {
			t.Fatal("no thread was ever in a tally")
		}
		if round%2 == 1 {
			if err := link.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			givesBack(t, l)
		}
		l.finish(sub.pid())
		maps, err := symbols.ReadMaps(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range laid {
			for _, m := range maps {
				if a >= m.Start && a < m.End {
					t.Errorf("the tally at %v is still mapped", a)
				}
			}
		}
		if t.Failed() {
			break
		}
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// TestTallyKilled kills kprobe while threads count in a tally: the program runs on over
// it, and a later kprobe takes it out.
func TestTallyKilled(t *testing.T) {
	killedBusy(t, full(2, 50), 6, func(c ring.Counts) bool { return c.Recorded > 100 }, append([]string{"profile"}, manyCounted...)...)
}
