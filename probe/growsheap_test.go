package probe

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestRemovedEventsAreSmall: of an event that was removed the tracer keeps its
// definition and its counters, so that a session may go on for days; and of one
// whose name comes again nothing more.
func TestRemovedEventsAreSmall(t *testing.T) {
	prog := fixture.Build(t, "probe_kernel.c", "-O2")
	const calls = 4 // of target, for each line of input
	for _, c := range []struct {
		name string
		defs []string // N stands for the round's number
		most int64    // bytes that each event may leave behind
	}{
		{"one name", []string{"p:x target n=$arg1 s=+0(%r8):string", "r:y target v=$retval"}, 64},
		{"many names", []string{"p:xN target n=$arg1 s=+0(%r8):string", "r:yN target v=$retval"}, 1280},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := startSubject(t, prog)
			l, _ := engage(t, sub.pid(), Options{}, "p:stays target")
			round, worked := 0, uint64(0)
			rounds := func(n int) {
				for range n {
					defs := strings.Split(strings.ReplaceAll(strings.Join(c.defs, "\n"), "N", strconv.Itoa(round)), "\n")
					link, err := l.s.Add(t.Context(), parseDefs(t, defs...))
					if err != nil {
						t.Fatal(err)
					}
					if round%8 == 0 {
						sub.work()
						worked++
					}
					round++
					if err := link.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			heap := func() int64 {
				waitUntil(func() bool { h, _ := heldBy(t, l.s); return h.retired == 0 })
				runtime.GC()
				runtime.GC() // what pools and finalizers kept
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			rounds(40)
			before := heap()
			n := full(500, 1000)
			rounds(n)
			each := (heap() - before) / int64(n*len(c.defs))
			l.finish(sub.pid())
			endOfInput(t, sub)
			t.Logf("each of %d events left %d bytes", n*len(c.defs), each)
			if each > c.most {
				t.Errorf("each event that came and went left %d bytes, want at most %d", each, c.most)
			}
			hits := uint64(0)
			for _, st := range l.s.Stats() {
				hits += st.Hits
			}
			if want := worked * calls * uint64(1+len(c.defs)); hits != want {
				t.Errorf("%d hits in all, want %d", hits, want)
			}
		})
	}
}
