package probe

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// How often testdata/probe_go.go calls its functions.
var goCalls = map[string]uint64{
	"walk": 8 * 12 * 101, "chain": 8 * 12 * 101, "link": 8 * 12 * 101, "last": 8 * 12 * 101, "leaf": 8 * 12 * 101,
	"grow": 8 * 12 * 6, "spin": 8 * 12, "caught": 8 * 12 * 2, "handle": 100,
}

// noRoomHits is how often a detour in Go code found no room on the stack.
func noRoomHits(l *live) (n int) {
	_ = l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			n += tg.NoRoomHits
		}
		return nil
	})
	return n
}

// TestGo: entries and returns of Go functions are jumps; each call is one hit,
// also where its stack had to grow or had no room for a detour, and the program
// computes what it computes without kprobe. Hazard D5.
func TestGo(t *testing.T) {
	prog := fixture.Build(t, "probe_go.go")
	want := plain(t, prog)
	for _, o := range []Options{{}, {NoOptimize: true}, {CountOnly: true}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			if o.NoOptimize && testing.Short() {
				t.Skip("slow")
			}
			sub := startSubject(t, prog)
			var defs []string
			for name := range goCalls {
				defs = append(defs, "p:in_"+name+" main."+name+" a=%ax", "r:out_"+name+" main."+name+" v=%ax")
			}
			// Faults at the probed instruction are the program's, and it recovers.
			defs = append(defs, "p:load main.load")
			l := attach(t, sub.pid(), o, defs...)
			if !o.NoOptimize {
				for name := range goCalls {
					for _, side := range []string{"in_", "out_"} {
						if n, why := optimizedOf(l, side+name); n != 1 {
							t.Errorf("%s%s is no jump: %s", side, name, why)
						}
					}
				}
			}
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			tight := noRoomHits(l)
			for name, n := range goCalls {
				for _, side := range []string{"in_", "out_"} {
					if st := l.stat(side + name); st.Hits != n || st.Missed != 0 {
						t.Errorf("%s%s: %d hits, %d missed, want %d hits", side, name, st.Hits, st.Missed, n)
					}
				}
			}
			l.finish(sub.pid())
			sub.end()
			if !o.NoOptimize && tight == 0 {
				t.Error("no stack was so small that a detour had no room: nothing was shown")
			}
			t.Logf("%d hits had no room on the stack", tight)
			lines := l.sink.all()
			for _, line := range lines {
				if strings.HasPrefix(line, "out_leaf") && !strings.Contains(line, "(main.last+") {
					t.Fatalf("%s: not returned to last", line)
				}
			}
		})
	}
}

// TestGoRuntime: the scheduler's and the collector's functions, those of the
// network and of locks, counted while the program works.
func TestGoRuntime(t *testing.T) {
	prog := fixture.Build(t, "probe_go.go")
	want := plain(t, prog)
	sub := startSubject(t, prog)
	l := attach(t, sub.pid(), Options{CountOnly: true},
		"p:all runtime.(\\**", "p:all net*", "p:all sync*", "p:all fmt.*", "p:all main.*", "p:all runtime.gc[A-Z]*",
		"p:all runtime.s[ct]*", "p:all runtime.new*", "p:chain main.chain")
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	jumps, _ := optimizedOf(l, "all")
	places := l.stat("all").Places
	if places < 2000 || jumps*100 < places*95 {
		t.Errorf("only %d of %d functions are probed by a jump", jumps, places)
	}
	t.Logf("%d of %d by a jump, %d hits", jumps, places, l.stat("all").Hits)
	if n := l.stat("chain").Hits; n != goCalls["chain"] {
		t.Errorf("chain: %d hits, want %d", n, goCalls["chain"])
	}
	l.finish(sub.pid())
	sub.end()
}
