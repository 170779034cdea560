package output

import (
	"fmt"
	"time"
)

// Clock turns the time of a hit, CLOCK_MONOTONIC in nanoseconds, into the time
// that is printed. The zero Clock prints it unchanged.
type Clock struct {
	offset int64 // added to the time, in nanoseconds
	zone   int64 // of a time of day, in seconds east of UTC
	form   clockForm
}

// clockForm is how a time is written.
type clockForm uint8

const (
	seconds   clockForm = iota
	timeOfDay           // in text; JSON has seconds
	distance            // to the hit before
)

// Clocks are the names that NewClock knows.
var Clocks = []string{"mono", "rel", "wall", "clock", "delta"}

// NewClock returns the clock of that name: "mono" counts from the boot of the
// machine as the kernel's trace clock mono does, "rel" from start, "wall" from
// 1970-01-01 UTC; "clock" is the time of day in wall's zone, and "delta" the distance to
// the hit before. start is CLOCK_MONOTONIC in nanoseconds at the moment wall; a wall
// clock that is set later, and a zone that changes its offset, are not followed.
func NewClock(name string, start uint64, wall time.Time) (Clock, error) {
	switch name {
	case "", "mono":
		return Clock{}, nil
	case "rel":
		return Clock{offset: -int64(start)}, nil
	case "wall":
		return Clock{offset: wall.UnixNano() - int64(start)}, nil
	case "clock":
		_, zone := wall.Zone()
		return Clock{offset: wall.UnixNano() - int64(start), zone: int64(zone), form: timeOfDay}, nil
	case "delta":
		return Clock{form: distance}, nil
	}
	return Clock{}, fmt.Errorf("unknown time %q: mono, rel, wall, clock or delta", name)
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

// micros is the printed time of a hit in microseconds; before is the time of the hit
// before, 0 if there is none, of which the distance is no less than 0.
func (c Clock) micros(ns, before uint64) uint64 {
	switch {
	case c.form != distance:
		return c.at(ns) / 1000
	case before == 0 || ns < before:
		return 0
	}
	return (ns - before) / 1000
}

// appendSecond appends a second, up to the point behind it, as lines of text have it, in
// the kernel's columns: "%5lu.", or HH:MM:SS.
func (c Clock) appendSecond(dst []byte, s uint64) []byte {
	if c.form != timeOfDay {
		return append(appendPadded(dst, s, 5, ' '), '.')
	}
	const day = 24 * 60 * 60
	s = uint64((int64(s%day) + c.zone + day) % day)
	for _, n := range []uint64{s / 3600, s / 60 % 60} {
		dst = append(appendPadded(dst, n, 2, '0'), ':')
	}
	return append(appendPadded(dst, s%60, 2, '0'), '.')
}

// ordered reports whether a line's time depends on the line before, so that lines can't
// be written in any order.
func (c Clock) ordered() bool { return c.form == distance }
