package probe

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// timeSink counts hits with and without a time.
type timeSink struct {
	from, to   uint64
	with, none int
	odd        []uint64
}

func (s *timeSink) Hit(h *Hit) error {
	switch {
	case h.Time == 0:
		s.none++
	case h.Time < s.from || h.Time > s.to:
		s.odd = append(s.odd, h.Time)
	default:
		s.with++
	}
	return nil
}

// TestHazardD13Left: a program forbids itself the time stamp counter while nobody traces it: each
// hit is recorded, and has no time, rather than any. Where the machine lets it read the counter all
// the same, each hit has its time.
func TestHazardD13Left(t *testing.T) {
	now := func() uint64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return uint64(ts.Nano())
	}
	prog := assumes(t)
	want := plain(t, prog, "tsc")
	sub := startSubject(t, prog, "tsc")
	name := shmFile(t)
	sink := &timeSink{from: now()}
	leaveIn(t, sub.pid(), Options{Detach: true, Keep: name}, "p:a step v=$arg1")
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	r, _, err := OpenBlackBox(name) // the program has ended
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sink.to = now() + uint64(time.Second)
	if err := r.Snapshot(t.Context(), 0, sink); err != nil {
		t.Fatal(err)
	}
	with, none := 0, 200
	if !forbidsTime(t, prog) {
		with, none = none, with
	}
	if len(sink.odd) > 0 || sink.with != with || sink.none != none {
		t.Errorf("%d hits have a time, %d none, and these another one: %v", sink.with, sink.none, sink.odd)
	}
}
