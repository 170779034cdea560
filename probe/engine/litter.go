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
// itself. So the heap may grow to litterRoom or to one and a half times what all places will take, whichever is
// more, and beyond that by the usual percentage.

const (
	litterRoom = 256 << 20 // bytes
	globRoom   = 128 << 20 // bytes, while the places of a glob are found
	// entryRoom and returnRoom are more than what a probe takes of the heap at most while jumps are planned: 1.5 KB for
	// an entry and 2.6 KB for a return, of all functions of node. kprobe then takes less than 400 MB for them.
	entryRoom  = 2200 // bytes
	returnRoom = 3900 // bytes
	// litterEvery is how often the percentage is adapted to what is in use.
	litterEvery = 20 * time.Millisecond
)

// litter lets the heap grow to what it needs while many places are examined, of which so many are returns.
// tidy restores the percentage.
func litter(places, returns int) (tidy func()) {
	if places < planner.LetGoFrom {
		return func() {}
	}
	return litterTo(max(litterRoom, uint64(places-returns)*entryRoom+uint64(returns)*returnRoom))
}

// litterTo lets the heap grow to so many bytes. tidy restores the percentage.
func litterTo(room uint64) (tidy func()) {
	usual := collecting.set(-1)
	if usual < 0 {
		return func() {}
	}
	now := litterPercent(inUse(), room, usual)
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
				if next := litterPercent(inUse(), room, usual); next != now {
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

// litterPercent is the percentage with which the heap may grow to room bytes; at least usual.
func litterPercent(now heap, room uint64, usual int) int {
	if now.live >= room {
		return usual
	}
	return max(usual, int((room-now.live)*100/max(now.live+now.roots, leastHeap)))
}

// leastHeap is the heap of which the percentage is reckoned at least (GOGC: 4 MB at 100 percent).
const leastHeap = 4 << 20

// heap is what the last collection found.
type heap struct {
	live  uint64 // bytes in use
	roots uint64 // bytes of stacks and globals, of which the percentage is reckoned, too (runtime/metrics, GOGC)
}

// inUse reads what the last collection found.
func inUse() heap {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(s)
	at := func(i int) uint64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return s[i].Value.Uint64()
	}
	return heap{at(0), at(1) + at(2)}
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
