package probe

import (
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/ring"
)

// clock reads CLOCK_MONOTONIC without a system call: the runtime's monotonic
// clock is the same clock with another zero, found once.
type clock struct {
	base   time.Time
	offset uint64
}

func newClock() clock {
	var ts unix.Timespec
	base := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return clock{base: base}
	}
	return clock{base: base, offset: uint64(ts.Nano())}
}

// now is CLOCK_MONOTONIC in nanoseconds.
func (c clock) now() uint64 { return c.offset + uint64(time.Since(c.base)) }

// TimeStep is the resolution of hit times, rounded to ns: that of the processor's time
// stamp counter, some 10 ns on AMD's. A shorter call reads as 0 ns or as one step. 0 is
// less than half a nanosecond, or not known. Measuring takes some milliseconds.
func TimeStep() uint64 {
	c := ring.SystemClock{}
	a := ring.TakeSample(c)
	time.Sleep(2 * ring.MinSpan)
	b := ring.TakeSample(c)
	if b.TSC <= a.TSC {
		return 0
	}
	return ring.Step(c, float64(b.NS-a.NS)/float64(b.TSC-a.TSC))
}
