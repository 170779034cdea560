package engine

import (
	"runtime/debug"
	"testing"
	"time"

	"kprobe/probe/planner"
)

func TestLitterPercent(t *testing.T) {
	for _, c := range []struct {
		live        uint64
		usual, want int
		much        uint64
	}{
		{0, 30, 28700, litterMuch}, {144 << 20, 30, 100, litterMuch}, {144 << 20, 150, 150, litterMuch}, {240 << 20, 30, 30, litterMuch},
		{288 << 20, 30, 30, litterMuch}, {1<<30 - 1, 30, 30, litterMuch}, {1 << 30, 30, 50, litterMuch}, {1 << 30, 80, 80, litterMuch},
		{144 << 20, 30, 100, litterRoom}, {288 << 20, 30, 50, litterRoom}, {288 << 20, 80, 80, litterRoom},
	} {
		if got := litterPercent(c.live, c.usual, c.much); got != c.want {
			t.Errorf("%d MB in use, usually %d: %d, want %d", c.live>>20, c.usual, got, c.want)
		}
	}
}

// TestLitter: while many places are examined, garbage is collected less often; behind it as before.
func TestLitter(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(30))
	now := func() int { p := debug.SetGCPercent(30); debug.SetGCPercent(p); return p }
	tidy := litter(planner.LetGoFrom - 1)
	if p := now(); p != 30 {
		t.Errorf("few places: %d", p)
	}
	tidy()
	tidy = litter(planner.LetGoFrom)
	time.Sleep(3 * litterEvery)
	if p := now(); p <= 30 {
		t.Errorf("many places: %d", p)
	}
	tidy()
	if p := now(); p != 30 {
		t.Errorf("behind them: %d", p)
	}
	debug.SetGCPercent(-1)
	litter(planner.LetGoFrom)()
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
