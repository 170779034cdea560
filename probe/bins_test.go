package probe

import (
	"context"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/probe/results"
)

// Hits of threads that change their CPUs are all in bins, whatever the ring holds; those
// of breakpoints come to the sink; what a probe has counted stays when it goes.
func TestBinsUnderLoad(t *testing.T) {
	sub := startStorm(t, "8")
	o := Options{RingSize: MinRing, Bin: func(ev *Event, prog *fetch.Program) *results.Bin {
		if ev.Name == "rec" {
			return nil
		}
		if ev.Return {
			return &results.Bin{Arg: 0, Form: results.FormFine}
		}
		return &results.Bin{Arg: 0, Form: results.FormLog2}
	}}
	l, c := engage(t, sub.pid(), o, "p:a f0 a=$arg1", "p:b f1 a=$arg1:u8 if a < 16", "r:c f2 d=$duration", "p:d f3 a=$arg1", "p:rec f3+0")
	tactics(t, l, "a", "d")
	sub.line()
	for l.stat("d").Hits < 30_000 {
		time.Sleep(time.Millisecond)
	}
	var gone *Event
	for _, st := range l.s.Stats() {
		if st.Event.Name == "d" {
			gone = st.Event
		}
	}
	if err := l.s.Remove(context.Background(), gone); err != nil {
		t.Fatal(err)
	}
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	recorded := l.stat("rec").Recorded
	for name, f := range map[string]int{"a": 0, "b": 1, "c": 2, "d": 3} {
		st := l.stat(name)
		if name != "d" && st.Hits+st.Missed != sub.calls[f] {
			t.Errorf("%s: %d hits and %d missed of %d calls", name, st.Hits, st.Missed, sub.calls[f])
		}
		in := uint64(0)
		for _, b := range l.s.Bins() {
			if b.Event.Name != name {
				continue
			}
			n := uint64(0)
			for _, x := range b.Cells {
				n += x
			}
			if in += n; n != b.Count || b.Event.Return && (b.Least > b.Most || b.Sum < b.Least*n || b.Sum > b.Most*n) {
				t.Errorf("%s: %d in bins, %d in all, from %d to %d, %d together", name, n, b.Count, b.Least, b.Most, b.Sum)
			}
		}
		if st.Lost > 0 || in == 0 || in > st.Recorded {
			t.Errorf("%s: %d hits in bins, %d counted, %d lost", name, in, st.Recorded, st.Lost)
		}
		recorded += st.Recorded - in
		t.Logf("%s: %d hits, %d filtered, %d in bins", name, st.Hits, st.Filtered, in)
	}
	if got := c.hits.Load(); got != recorded {
		t.Errorf("%d hits came out, %d were to be records", got, recorded)
	}
}
