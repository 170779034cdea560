package engine

import (
	"runtime/debug"
	"testing"
	"time"

	"kprobe/probe/planner"
)

func TestLitterPercent(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		now         heap
		room        uint64
		usual, want int
	}{
		{heap{}, 288 * mb, 30, 7200}, {heap{mb, 3 * mb}, 129 * mb, 30, 3200},
		{heap{144 * mb, 0}, 288 * mb, 30, 100}, {heap{144 * mb, 0}, 288 * mb, 150, 150}, {heap{240 * mb, 0}, 288 * mb, 30, 30},
		{heap{288 * mb, 0}, 288 * mb, 30, 30}, {heap{1 << 30, 0}, 288 * mb, 30, 30}, {heap{1 << 30, 0}, 3 << 30, 30, 200},
	} {
		if got := litterPercent(c.now, c.room, c.usual); got != c.want {
			t.Errorf("%+v, room for %d MB, usually %d: %d, want %d", c.now, c.room>>20, c.usual, got, c.want)
		}
	}
}

// TestLitter: while many places are examined, garbage is collected less often; behind it as before.
func TestLitter(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(30))
	now := func() int { p := debug.SetGCPercent(30); debug.SetGCPercent(p); return p }
	tidy := litter(planner.LetGoFrom-1, 0)
	if p := now(); p != 30 {
		t.Errorf("few places: %d", p)
	}
	tidy()
	tidy = litter(planner.LetGoFrom, 1)
	time.Sleep(3 * litterEvery)
	if p := now(); p <= 30 {
		t.Errorf("many places: %d", p)
	}
	tidy()
	if p := now(); p != 30 {
		t.Errorf("behind them: %d", p)
	}
	debug.SetGCPercent(-1)
	litter(planner.LetGoFrom, 1)()
	if p := debug.SetGCPercent(30); p != -1 {
		t.Errorf("switched off: %d", p)
	}
}

// While collecting is held, no garbage is collected, and what is set meanwhile holds afterwards.
func TestHoldCollecting(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(30))
	release := collecting.hold()
	if was := collecting.set(40); was != 30 {
		t.Errorf("it was %d", was)
	}
	if p := debug.SetGCPercent(-1); p != -1 {
		t.Errorf("held: %d", p)
	}
	collecting.hold()() // the first one holds
	if p := debug.SetGCPercent(-1); p != -1 {
		t.Errorf("held twice: %d", p)
	}
	release()
	if p := debug.SetGCPercent(40); p != 40 {
		t.Errorf("released: %d", p)
	}
}
