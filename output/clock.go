package output

import (
	"fmt"
	"time"
)

// Clock turns the time of a hit, CLOCK_MONOTONIC in nanoseconds, into the time
// that is printed. The zero Clock prints it unchanged.
type Clock struct {
	offset int64 // added to the time, in nanoseconds
}

// NewClock returns the clock of that name: "mono" counts from the boot of the
// machine as the kernel's trace clock mono does, "rel" from start, "wall" from
// 1970-01-01 UTC. start is CLOCK_MONOTONIC in nanoseconds at the moment wall;
// a wall clock that is set later is not followed.
func NewClock(name string, start uint64, wall time.Time) (Clock, error) {
	switch name {
	case "", "mono":
		return Clock{}, nil
	case "rel":
		return Clock{offset: -int64(start)}, nil
	case "wall":
		return Clock{offset: wall.UnixNano() - int64(start)}, nil
	}
	return Clock{}, fmt.Errorf("unknown time %q: mono, rel or wall", name)
}

// at gives the printed time of a hit in nanoseconds; a hit from before the
// start of a relative clock is at 0.
func (c Clock) at(ns uint64) uint64 {
	t := int64(ns) + c.offset
	if t < 0 {
		return 0
	}
	return uint64(t)
}
