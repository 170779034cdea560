package probe

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/mailbox"
	"kprobe/probe/ring"
)

// TestOpenCalls: calls that are under way are told to another kprobe, with the time of
// their entry and where their return address lies, however they are followed.
func TestOpenCalls(t *testing.T) {
	prog := fixture.Build(t, "inside_hang.c", "-O1", "-g", "-pthread")
	for _, c := range []struct {
		name string
		o    Options
		defs []string
	}{
		{"jumps", Options{}, []string{"r:calls/out holds at=$entrytime", "r:more locks at=$entrytime"}},
		{"exits", Options{}, []string{"r:calls/out holds at=$entrytime stack", "r:more locks at=$entrytime stack"}},
		{"breakpoints", Options{NoOptimize: true}, []string{"r:calls/out holds", "r:more locks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := startSubject(t, prog)
			s := attach(t, sub.pid(), c.o, c.defs...)
			l := openedLive(t, sub.pid())
			if open, err := l.OpenCalls(context.Background()); err != nil || len(open) != 0 {
				t.Errorf("at first: %+v, %v", open, err)
			}
			clock := ring.SystemClock{}
			began := uint64(clock.Mono())
			sub.work()
			var open []OpenCall
			for deadline := time.Now().Add(patient); len(open) < 5; time.Sleep(5 * time.Millisecond) {
				var err error
				if open, err = l.OpenCalls(context.Background()); err != nil {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatalf("%+v", open)
				}
			}
			now := uint64(clock.Mono())
			held := slices.DeleteFunc(slices.Clone(open), func(c OpenCall) bool { return c.Func != "holds" })
			if len(open) != 5 || len(held) != 3 {
				t.Fatalf("%+v", open)
			}
			for i, c := range held {
				if c.TID != held[0].TID || c.Event != "calls/out" || c.Return == 0 || c.G != 0 || i > 0 && (c.Slot >= held[i-1].Slot || c.Entry < held[i-1].Entry) {
					t.Errorf("call %d: %+v", i, c)
				}
				// The time stamp counter's rate is known to some millionths here.
				if c.Entry+1e6 < began || c.Entry > now+1e6 {
					t.Errorf("call %d was entered at %d, not between %d and %d", i, c.Entry, began, now)
				}
			}
			s.finish(sub.pid())
		})
	}
}

// TestOpenCallsPages: the pages of an answer are of one list, whatever begins and returns in between.
func TestOpenCallsPages(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "inside_hang.c", "-O1", "-g", "-pthread"))
	s := attach(t, sub.pid(), Options{}, "r:calls/out holds", "r:more locks")
	page := func(asker, from int) []OpenCall {
		var a struct{ Open []OpenCall }
		if err := json.Unmarshal(s.s.openAnswer(&mailbox.Request{Op: mailbox.Open, PID: sub.pid(), From: from}, asker), &a); err != nil {
			t.Fatal(err)
		}
		return a.Open
	}
	sub.work()
	for deadline := time.Now().Add(patient); len(page(1, 0)) < 5; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", page(1, 0))
		}
	}
	list := page(1, 0)
	err := s.s.engine.Tracer.Do(func() error {
		s.s.open.calls = s.s.open.calls[:3] // as if two had begun since
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := page(1, 2); len(got) != 1 || got[0] != list[2] {
		t.Errorf("the second page has %+v, want %+v", got, list[2])
	}
	if got := page(2, 2); len(got) != 3 {
		t.Errorf("another process, which has asked for nothing yet, is told %+v", got)
	}
	if got := page(1, 3); len(got) != 2 {
		t.Errorf("behind the other's request the third page has %+v", got)
	}
	if got := page(1, 5); len(got) != 0 {
		t.Errorf("behind the end: %+v", got)
	}
	s.finish(sub.pid())
}
