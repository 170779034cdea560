package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
)

// TestBypassedLeft is TestBypassed where nobody traces: a call that comes to a return by its address meets the guard,
// and the fallback handler leads it on.
func TestBypassedLeft(t *testing.T) {
	prog := fixture.Build(t, "bypassed.c", "-O1", "-pthread")
	const rounds, threads, calls = 20000, 3, 20000 * 3
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	want := plain(t, prog, args...)
	names := []string{"led", "onward", "falls", "last"}
	var defs []string
	for _, name := range names {
		defs = append(defs, "r:"+name+" "+name+" v=$retval x=$arg1")
	}
	t.Run("let go of", func(t *testing.T) {
		sub := startSubject(t, prog, args...)
		sink := &returned{n: map[string]uint64{}}
		l := engageInto(t, sub.pid(), Options{LetGo: true}, sink, defs...)
		l.untraced(sub.pid())
		bypassed := 0
		onTracer(t, l, func(tg *engine.Target) error {
			for _, p := range tg.Patches.List {
				if p.Armed && p.Plan.Tactic == plan.Bypass {
					bypassed++
				}
			}
			return nil
		})
		if bypassed != 2 {
			t.Errorf("%d patches are bypasses, want 2", bypassed)
		}
		l.untraced(sub.pid())
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for _, name := range names {
			if st := l.stat(name); st.Hits != calls || st.Missed != 0 || sink.n[name]+st.Lost != st.Hits {
				t.Errorf("%s: %+v, %d records, want %d", name, st, sink.n[name], calls)
			}
		}
		if sink.bad != 0 {
			t.Errorf("%d returns with a wrong value", sink.bad)
		}
	})
	t.Run("detached", func(t *testing.T) {
		sub := startSubject(t, prog, args...)
		leaveIn(t, sub.pid(), Options{Detach: true}, defs...)
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		for _, st := range openedLive(t, sub.pid()).Stats() {
			if st.Hits != calls || st.Missed != 0 {
				t.Errorf("%s: %+v, want %d", st.Event.Name, st, calls)
			}
		}
		if n := sub.takenOut(); n != len(names) {
			t.Errorf("there are %d events, want %d", n, len(names))
		}
		sub.end()
	})
}
