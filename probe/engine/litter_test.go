package engine

import (
	"math"
	"runtime/debug"
	"testing"

	"kprobe/probe/planner"
)

// TestLitter: garbage may lie around while many places are looked at, up to a goal; behind that
// the collector is as it was.
func TestLitter(t *testing.T) {
	const percent = 30
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	now := func() (int, int64) {
		p := debug.SetGCPercent(percent)
		debug.SetGCPercent(p)
		return p, debug.SetMemoryLimit(-1)
	}
	for _, tt := range []struct {
		name    string
		places  int
		limit   int64
		percent int
		during  int64
	}{
		{"few places", planner.LetGoFrom - 1, math.MaxInt64, percent, math.MaxInt64},
		{"many places", planner.LetGoFrom, math.MaxInt64, 2 * litterPercent, litterGoal},
		{"a limit of the user's", planner.LetGoFrom, litterGoal / 2, litterPercent, litterGoal / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			debug.SetMemoryLimit(tt.limit)
			tidy := litter(tt.places)
			p, limit := now()
			tidy()
			if p != tt.percent || limit != tt.during {
				t.Errorf("%d%% and a limit of %d, want %d%% and %d", p, limit, tt.percent, tt.during)
			}
			if p, limit := now(); p != percent || limit != tt.limit {
				t.Errorf("behind that %d%% and a limit of %d, want %d%% and %d", p, limit, percent, tt.limit)
			}
		})
	}
	t.Run("much is kept", func(t *testing.T) {
		kept := make([]byte, litterKept+1<<20)
		debug.SetMemoryLimit(math.MaxInt64)
		debug.FreeOSMemory() // collects
		tidy := litter(planner.LetGoFrom)
		defer tidy()
		if p, limit := now(); p != litterPercent || limit != math.MaxInt64 {
			t.Errorf("%d%% and a limit of %d, want %d%% and none", p, limit, litterPercent)
		}
		kept[0]++
	})
}
