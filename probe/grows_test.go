package probe

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// held is what a session holds in its target and knows of it.
type held struct{ table, journal, sites, slots, patches, stages, guards, pools, retired int }

// TestNothingGrows has probes of every kind come and go for long: what they need
// in the target comes back, so that a session may go on for days.
func TestNothingGrows(t *testing.T) {
	kinds := []string{
		"p:a%d f0", "p:a%d f0+2 x=%%ax", "p:a%d f0+3", "p:a%d f1 s=+0($arg1):string", "p:a%d f1+5", "p:a%d f2", "p:a%d f2+2", "p:a%d f3",
		"r:a%d f3 v=$retval", "r:a%d f4 a=$arg1", "p:a%d f4+1", "p:a%d f5+1", "p:a%d f5+3", "p:a%d f6+1", "r:a%d f6",
	}
	for _, o := range []Options{{CountOnly: true}, {CountOnly: true, NoOptimize: true}, {}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			sub := startStorm(t, "2")
			l, _ := engage(t, sub.pid(), o, "p:stays f3")
			sub.line()
			rng := rand.New(rand.NewPCG(3, 5))
			n := 0
			before, _ := heldBy(t, l.s)
			for range full(60, 3000) {
				var in []*Event
				for range 1 + rng.IntN(3) {
					var defs []string
					for range 1 + rng.IntN(5) {
						n++
						defs = append(defs, fmt.Sprintf(kinds[rng.IntN(len(kinds))], n))
					}
					link, err := l.s.Add(t.Context(), parseDefs(t, defs...))
					if err != nil {
						t.Fatal(err)
					}
					in = append(in, link.Events()...)
				}
				rng.Shuffle(len(in), func(a, b int) { in[a], in[b] = in[b], in[a] })
				k := rng.IntN(len(in))
				for _, part := range [][]*Event{in[:k], in[k:]} {
					if err := l.s.Remove(t.Context(), part...); err != nil {
						t.Fatal(err)
					}
				}
			}
			var after held
			arenas := 0
			waitUntil(func() bool { after, arenas = heldBy(t, l.s); return after.retired == 0 })
			sub.stop()
			l.finish(sub.pid())
			sub.end()
			if st := l.stat("stays"); st.Hits != sub.calls[3] {
				t.Errorf("%d hits of %d calls", st.Hits, sub.calls[3])
			}
			t.Logf("%d probes came and went: %+v, %d pieces", n, after, arenas)
			if after != before || arenas > 8 {
				t.Errorf("it held\n%+v, and holds\n%+v in %d pieces", before, after, arenas)
			}
		})
	}
}

// TestFaultGivesBack: the code of a jump that became a breakpoint, since its
// instruction had faulted, comes back.
func TestFaultGivesBack(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_faults.c", "-O2"), "repair", "5", "early")
	l := attach(t, sub.pid(), Options{}, "p:stays nothing")
	before, _ := heldBy(t, l.s)
	link, err := l.s.Add(t.Context(), parseDefs(t, "p:a load", "p:b store_add"))
	if err != nil {
		t.Fatal(err)
	}
	tactics(t, l, "a", "b")
	if got := sub.work(); !strings.HasSuffix(got, "bad 0") {
		t.Errorf("the program printed %q", got)
	}
	if now := tacticsNow(l.s); now["a"] || now["b"] {
		t.Errorf("they are jumps yet: %v", now)
	}
	if err := link.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := held{}
	waitUntil(func() bool { after, _ = heldBy(t, l.s); return after.retired == 0 })
	if after != before {
		t.Errorf("it held %+v, and holds %+v", before, after)
	}
	l.finish(sub.pid())
	sub.end()
}
