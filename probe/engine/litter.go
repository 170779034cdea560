package engine

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"kprobe/probe/planner"
)

// How often garbage is collected while many places are examined
//
// Each collection reads everything that is in use. With the percentage that suits the rest of a
// session (debug.SetGCPercent), collecting while there is little would take as long as the work
// itself. So the heap may always grow to litterRoom, and beyond that by the usual percentage. With
// hundreds of thousands of places each collection takes seconds, so the heap may then grow by half beyond
// litterRoom, and beyond litterMuch always.

const (
	litterRoom = 288 << 20 // bytes
	litterMuch = 1 << 30   // bytes
	muchMore   = 50        // percent
	// manyPlaces is the number of places from which on the heap may grow by half beyond litterRoom.
	manyPlaces = 1 << 17
	// litterEvery is how often the percentage is adapted to what is in use.
	litterEvery = 20 * time.Millisecond
)

// litter lets the heap grow to litterRoom while many places are examined. tidy restores the percentage.
func litter(places int) (tidy func()) {
	if places < planner.LetGoFrom {
		return func() {}
	}
	usual := collecting.set(-1)
	if usual < 0 {
		return func() {}
	}
	much := uint64(litterMuch)
	if places >= manyPlaces {
		much = litterRoom
	}
	now := litterPercent(inUse(), usual, much)
	collecting.set(now)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(litterEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if next := litterPercent(inUse(), usual, much); next != now {
					now = next
					collecting.set(now)
				}
			}
		}
	}()
	return func() {
		close(over)
		<-done
		collecting.set(usual)
	}
}

// litterPercent is the percentage with which a heap of which live bytes are in use may grow to
// litterRoom, or by half if it is larger than much bytes; at least usual.
func litterPercent(live uint64, usual int, much uint64) int {
	live = max(live, 1<<20)
	switch {
	case live >= much:
		return max(usual, muchMore)
	case live >= litterRoom:
		return usual
	}
	return max(usual, int((litterRoom-live)*100/live))
}

// inUse is how many bytes of the heap the last collection found in use.
func inUse() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}

// collection is how often garbage is collected, and whether it is at all.
type collection struct {
	mu      sync.Mutex
	held    bool
	percent int // what holds again when it is no longer held
}

// collecting is kprobe's.
var collecting collection

// set sets the percentage by which the heap may grow, and returns what it was. While collecting is held, it
// holds afterwards.
func (c *collection) set(percent int) (was int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		was, c.percent = c.percent, percent
		return was
	}
	return debug.SetGCPercent(percent)
}

// hold waits until no garbage is collected, and has none collected until release is called. It is for the stops of
// a process: a collection takes the processors and has the tracer's thread help, and the process would
// stand still for all of it.
func (c *collection) hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		return func() {}
	}
	c.held, c.percent = true, debug.SetGCPercent(-1)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held = false
		debug.SetGCPercent(c.percent)
	}
}
