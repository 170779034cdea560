package ring

import (
	"testing"
	"time"
)

// TestSettled: as long as somebody may come back to a reservation, what lies behind
// it, and it itself, isn't settled, however late it is: its number stays its own.
func TestSettled(t *testing.T) {
	for _, known := range []bool{false, true} {
		dead := false
		x := newBench(t, 2, Options{Abandoned: func(Unfinished) bool { return dead }})
		x.put(t, 0, 1, 1, x.now(), "")
		wantTIDs(t, x.poll(t, false), 1)
		at := x.headOf(0)
		r := Reservation{x.p.m, x.l.RingData(0) + int64(at), 5, Units(8)}
		if known {
			r, _ = x.p.Reserve(0, 5, 8)
		} else {
			x.reserveOnly(0, Units(8))
		}
		x.put(t, 0, 2, 2, x.now(), "behind")
		removed := x.now() // the probes 2 and 5 are taken out, and nobody is in their code
		given := 0
		for range 20 {
			x.clock.advance(int(50 * time.Millisecond))
			given += len(x.poll(t, false))
			if x.r.Settled() > removed {
				t.Fatalf("length known %v: settled, %d records given", known, given)
			}
		}
		if x.r.Given() <= removed {
			t.Error("all others wait for it still")
		}
		if known {
			dead = true
		} else {
			r.m.store32(r.at+StateOff, StateWord(5, r.units))
			r.Fill(9, x.now(), []byte("late"))
			r.Commit()
		}
		late := 0
		for range 20 {
			x.clock.advance(int(50 * time.Millisecond))
			late += len(x.poll(t, false))
		}
		if x.r.Settled() <= removed || given+late != map[bool]int{true: 1, false: 2}[known] {
			t.Errorf("length known %v: %d and %d records given, settled %v", known, given, late, x.r.Settled() > removed)
		}
	}
}
