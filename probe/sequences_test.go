package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/ring"
)

// marks is a Sink that checks the hits of mark in sequences.c: each whole, none twice,
// and in the order of its thread.
type marks struct {
	t    *testing.T
	next map[uint64]uint64
	n    uint64
}

func (m *marks) Hit(h *Hit) error {
	if h.Event.Name != "mark" {
		return nil
	}
	m.n++
	vals, err := h.Program.Decode(h.Data, nil)
	if err != nil {
		return err
	}
	thread, call := vals[0].Int>>32, vals[0].Int&0xffff_ffff
	if vals[1].Int != ^vals[0].Int || call < m.next[thread] {
		return fmt.Errorf("thread %d: call %d, %#x and %#x, where %d is next", thread, call, vals[0].Int, vals[1].Int, m.next[thread])
	}
	m.next[thread] = call + 1
	return nil
}

// filtered is how many hits of an event's only place were filtered in sequences, and by
// locked instructions.
func (l *live) filtered(name string) (inSequences, locked uint64) {
	l.t.Helper()
	for _, t := range l.s.engine.Feeds {
		for id, p := range t.Ids {
			if p.Ev.Name != name {
				continue
			}
			for cpu := range t.File.Layout.CPUs {
				at := t.File.Layout.Counter(cpu, uint32(id)+1, ring.CounterFiltered)
				locked += t.File.Load64(at)
				inSequences += t.File.Load64(at + ring.CounterSeq)
			}
		}
	}
	return inSequences, locked
}

// Hits in restartable sequences, and beside them, are exact, and leave the program's own
// sequences right, whatever interrupts them.
func TestSequences(t *testing.T) {
	for _, tt := range []struct {
		how     string
		threads int
		calls   int
		late    bool // from some time on no hits are taken in sequences
	}{
		{"sm", 8, full(150_000, 10_000_000), false},
		{"smbvf", 8, full(100_000, 1_000_000), false},
		{"s", 100, full(5_000, 200_000), false},
		{"mu", 8, full(30_000, 1_000_000), false},
		{"smc", 4, full(10_000, 1_000_000), true},
	} {
		t.Run(tt.how, func(t *testing.T) {
			path := fixture.Build(t, "sequences.c", "-O2", "-lpthread")
			sub := startSubject(t, path, fmt.Sprint(tt.threads), fmt.Sprint(tt.calls), tt.how)
			sink := &marks{t: t, next: map[uint64]uint64{}}
			l := engageInto(t, sub.pid(), Options{}, sink, "p:tick tick a=$arg1:u64 if a == 0x123456789", "p:mark mark a=$arg1:u64 b=$arg2:u64", "p:bump bump a=$arg1:u64 if a == 0x123456789", "r:twice twice v=$retval:u64 if v == 1")
			tactics(t, l, "tick", "mark", "bump", "twice")
			sub.line()
			var ticks, calls, own, counted, aborted uint64
			if _, err := fmt.Sscan(sub.expect("done")[len("done"):], &ticks, &calls, &own, &counted, &aborted); err != nil {
				t.Fatal(err)
			}
			l.finish(sub.pid())
			sub.end()
			inSequences, locked := l.filtered("tick")
			t.Logf("%d in sequences, %d not", inSequences, locked)
			if (inSequences == 0 || locked == 0) && !tt.late || inSequences+locked != ticks || tt.how == "mu" && locked < ticks/3 {
				t.Errorf("of %d ticks %d are counted in sequences, %d by locked instructions", ticks, inSequences, locked)
			}
			t.Logf("%d ticks, %d marks, %d of %d counted by the program, %d of its sequences aborted", ticks, calls, counted, own, aborted)
			if own != counted {
				t.Errorf("the program's own counter says %d of %d", counted, own)
			}
			if st := l.stat("tick"); st.Hits != ticks || st.Filtered != ticks {
				t.Errorf("tick: %+v, called %d times", st, ticks)
			}
			if st := l.stat("mark"); st.Hits != calls || st.Recorded != sink.n || st.Recorded+st.Lost != calls || st.Unfinished != 0 {
				t.Errorf("mark: %+v, called %d times, %d records", st, calls, sink.n)
			}
			if st := l.stat("bump"); st.Hits < own {
				t.Errorf("bump: %+v, called %d times", st, own)
			}
			if st := l.stat("twice"); st.Hits+st.Missed != calls {
				t.Errorf("twice: %+v, called %d times", st, calls)
			}
		})
	}
}
