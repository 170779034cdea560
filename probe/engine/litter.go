package engine

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"kprobe/probe/planner"
)

// Garbage, while many places are looked at
//
// A plan of thousands of places leaves several times as much garbage as it keeps. To collect
// it again and again would take as long as all the rest, and to let it lie takes memory. So
// it may lie around as long as all memory together is below litterGoal. Where what is kept
// comes near that by itself the goal is given up, or nothing but collecting would be done:
// then there may be litterPercent of what is kept.

const (
	litterPercent = 50
	litterGoal    = 320 << 20
	// litterKept is up to how much may be kept under the goal.
	litterKept = litterGoal / 4 * 3
)

// litter lets garbage lie around while many places are looked at, where little may.
// It returns how to have it as before.
func litter(places int) (tidy func()) {
	if places < planner.LetGoFrom {
		return func() {}
	}
	was := debug.SetGCPercent(litterPercent)
	if was < 0 || was > litterPercent {
		debug.SetGCPercent(was)
		return func() {}
	}
	l := &littering{limit: debug.SetMemoryLimit(-1)}
	l.mu.Lock()
	l.set()
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
		debug.SetMemoryLimit(l.limit)
		debug.SetGCPercent(was)
	}
}

// littering is how much garbage may lie around for now.
type littering struct {
	mu    sync.Mutex
	limit int64 // of memory, as it was
	over  bool
}

// set says how much garbage there may be until the next collection, behind which it is
// called again.
func (l *littering) set() {
	if l.over {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if l.limit != math.MaxInt64 && l.limit <= litterGoal || live[0].Value.Uint64() > litterKept {
		debug.SetMemoryLimit(l.limit)
		debug.SetGCPercent(litterPercent)
		return
	}
	debug.SetMemoryLimit(litterGoal)
	debug.SetGCPercent(2 * litterPercent)
	runtime.AddCleanup(new(*littering), func(l *littering) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.set()
	}, l)
}
