package probe

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/ring"
)

// leftCounter adds up a counter of an event that was left, over all CPUs: in sequences,
// and by locked instructions.
func leftCounter(t *testing.T, l *Live, name string, counter int) (inSequences, locked uint64) {
	t.Helper()
	word := func(off int64) uint64 {
		var b [8]byte
		if _, err := l.file().ReadAt(b[:], off); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	for i := range l.snap.Probes {
		p := &l.snap.Probes[i]
		if p.Name != "kprobes/"+name {
			continue
		}
		for cpu := range l.snap.Layout.CPUs {
			at := l.snap.Layout.Counter(cpu, p.ID, counter)
			locked += word(at)
			inSequences += word(at + ring.CounterSeq)
		}
	}
	return inSequences, locked
}

// Probes that were left alone take their hits in sequences, and count each, while
// threads, and children that share the memory, come and go with nobody who sees it.
func TestLeftSequences(t *testing.T) {
	for _, tt := range []struct {
		how     string
		threads int
		calls   int
		few     bool // most hits take locked instructions
	}{
		{"smbvwf", 8, full(40_000, 3_000_000), false},
		{"bw", 16, full(4_000, 200_000), false},
		{"mu", 8, full(20_000, 1_000_000), false},
		{"smc", 4, full(10_000, 1_000_000), true},
	} {
		t.Run(tt.how, func(t *testing.T) {
			path := fixture.Build(t, "sequences.c", "-O2", "-lpthread")
			sub := startSubject(t, path, fmt.Sprint(tt.threads), fmt.Sprint(tt.calls), tt.how)
			leaveIn(t, sub.pid(), Options{Detach: true}, "p:tick tick a=$arg1:u64 if a == 0x123456789", "p:mark mark a=$arg1:u64 b=$arg2:u64", "p:bump bump a=$arg1:u64 if a == 0x123456789", "r:twice twice v=$retval:u64 if v == 1")
			sub.line()
			var ticks, calls, own, counted, aborted uint64
			if _, err := fmt.Sscan(sub.expect("done")[len("done"):], &ticks, &calls, &own, &counted, &aborted); err != nil {
				t.Fatal(err)
			}
			var r *Recorder
			var err error
			if !waitUntil(func() bool { // on a busy machine it may take longer than is waited for
				r, err = OpenRecorder(sub.pid())
				return err == nil
			}) {
				t.Fatal(err)
			}
			defer r.Close()
			sink := &marks{t: t, next: map[uint64]uint64{}}
			if err := r.Snapshot(t.Context(), 0, sink); err != nil {
				t.Error(err)
			}
			l := openedLive(t, sub.pid())
			inSequences, locked := leftCounter(t, l, "tick", ring.CounterFiltered)
			t.Logf("%d in sequences, %d not; %d marks held", inSequences, locked, sink.n)
			if inSequences+locked != ticks || inSequences == 0 && !tt.few || tt.few && inSequences > locked {
				t.Errorf("of %d ticks %d are counted in sequences, %d by locked instructions", ticks, inSequences, locked)
			}
			if own != counted {
				t.Errorf("the program's own counter says %d of %d", counted, own)
			}
			h, err := r.Held()
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range h.Stats {
				want := map[string]uint64{"tick": ticks, "mark": calls, "twice": calls}[st.Event.Name]
				if st.Event.Name != "bump" && st.Hits+st.Missed != want || st.Event.Name == "bump" && st.Hits < own || h.Unfinished != 0 {
					t.Errorf("%s: %+v, called %d times", st.Event.Name, st, want)
				}
			}
			if n := sub.takenOut(); n != 4 {
				t.Errorf("there are %d events, want 4", n)
			}
			sub.end()
		})
	}
}

// Each way in which a task is made: who has no rseq area of its own takes no hit in a
// sequence, and who has one does, before and behind.
func TestLeftBirths(t *testing.T) {
	const calls, most, none = 1000, "most", "none"
	sub := startSubject(t, fixture.Build(t, "births.c", "-O2", "-pthread"))
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:tick tick a=$arg1:u64 if a == 0x123456789")
	l := openedLive(t, sub.pid())
	var inBefore, outBefore uint64
	for i, step := range []struct{ how, inSequences string }{
		{"t", most},
		{"b", most}, {"b", most},
		{"s", none}, {"t", most},
		{"v", none}, {"t", most},
		{"w", none}, {"t", most},
		{"f", "neither"}, {"t", most},
		{"p", most}, {"b", most},
		{"l", none}, {"t", none}, // it may live on
		{"x", none}, {"t", none},
	} {
		sub.says("%s", step.how)
		in, out := leftCounter(t, l, "tick", ring.CounterFiltered)
		got := in - inBefore
		if sum := got + out - outBefore; step.how == "f" && sum != 0 || step.how != "f" && sum != calls {
			t.Errorf("%d, %s: %d hits of %d calls", i, step.how, sum, calls)
		}
		if step.inSequences == most && got < calls/2 || step.inSequences != most && got > 0 {
			t.Errorf("%d, %s: %d of %d hits are taken in sequences, should be %s", i, step.how, got, calls, step.inSequences)
		}
		inBefore, outBefore = in, out
	}
	sub.takenOut()
	sub.end()
}

// Where what makes tasks can't be watched it is said, and hits take locked instructions.
func TestLeftLocked(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "jit_map.c", "-O2"))
	var said []string
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Detach: true, Log: logTo(slog.LevelDebug, func(text string) { said = append(said, text) })})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if err := s.Arm(t.Context(), []*fetch.Def{parsed(t, "p:leaf leaf")}); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "by locked instructions: the process has code without a file") {
		t.Errorf("it says %q", all)
	}
}
