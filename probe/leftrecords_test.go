package probe

import (
	"fmt"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/ring"
)

// TestLeftRecords: a record whose detour a signal handler has left is given up, also if the thread is in a
// detour meanwhile. One that the thread will go on with is not.
func TestLeftRecords(t *testing.T) {
	const given = 30 * time.Millisecond
	begin := func(t *testing.T, rings bool, def string) (s *subject, l *live, tg *engine.Target, tid uint32) {
		s = startSubject(t, fixture.Build(t, "interrupted_detour.c", "-O1", "-pthread"))
		if _, err := fmt.Sscanf(s.ready, "ready %d", &tid); err != nil {
			t.Fatal(err)
		}
		l = engageInto(t, s.pid(), Options{LetGo: true}, &counter{}, def)
		l.untraced(s.pid())
		tg = l.s.engine.Targets[s.pid()]
		from, to := uint64(0), uint64(0)
		if f := tg.Area.File; rings {
			from = f.Load64(f.Layout.RingWord(0, ring.DataPtr))
			to = f.Load64(f.Layout.RingWord(f.Layout.NumRings()-1, ring.DataPtr)) + uint64(f.Layout.RingSize)
		}
		if _, err := fmt.Fprintf(s.in, "%x %x\n", from, to); err != nil {
			t.Fatal(err)
		}
		s.expect("inside")
		return s, l, tg, tid
	}
	// settled waits until all records that were begun are given or given up.
	settled := func(tg *engine.Target, most time.Duration) bool {
		now := ring.SystemClock{}.TSC()
		for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(given) {
			if tg.Feed.Rings.Settled() > now {
				return true
			}
		}
		return false
	}
	end := func(s *subject, l *live) (calls uint64) {
		s.line()
		if _, err := fmt.Sscanf(s.work(), "done %d", &calls); err != nil {
			s.t.Fatal(err)
		}
		l.finish(s.pid())
		s.end()
		return calls
	}
	t.Run("of another hit", func(t *testing.T) {
		s, l, tg, tid := begin(t, false, "p:kt/work work n=$arg1:u64 if n == 0")
		p, err := ring.NewProducer(tg.Area.File.Mem, tg.Area.File.Layout)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := p.Reserve(0, 1, 0)
		if !ok {
			t.Fatal("the ring has no room")
		}
		r.Fill(tid, ring.SystemClock{}.TSC(), nil)
		if !settled(tg, patient) {
			t.Error("the record is not given up")
		}
		end(s, l)
		if n := l.sum.Stats[0].Lost; n != 1 {
			t.Errorf("%d hits are lost, want the one", n)
		}
	})
	t.Run("that goes on", func(t *testing.T) {
		s, l, tg, _ := begin(t, true, "p:kt/work work n=$arg1:u64")
		if settled(tg, 4*time.Second) {
			t.Error("the record is given up")
		}
		calls := end(s, l)
		if c := l.sum.Stats[0]; c.Hits > calls || c.Hits == 0 || c.Unfinished > 0 {
			t.Errorf("%d calls: %+v", calls, c.Counts())
		}
	})
}
