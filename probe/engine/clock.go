package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC without a system call. The Go runtime's monotonic clock is the same
// clock with another zero; the difference is found once.
type clock struct {
	base   time.Time
	offset uint64 // CLOCK_MONOTONIC at base, in nanoseconds; 0 if it can't be read
}

// NewClock makes a clock.
func NewClock() clock {
	var ts unix.Timespec
	base := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return clock{base: base}
	}
	return clock{base: base, offset: uint64(ts.Nano())}
}

// Now is CLOCK_MONOTONIC in nanoseconds.
func (c clock) Now() uint64 { return c.offset + uint64(time.Since(c.base)) }
