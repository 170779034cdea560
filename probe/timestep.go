package probe

import (
	"time"

	"kprobe/probe/ring"
)

// TimeStep returns the resolution of hit times in nanoseconds, rounded. It is that of the
// processor's time stamp counter, some 10 ns on AMD. A shorter call reads as 0 ns or as one
// step. 0 means less than half a nanosecond, or unknown. TimeStep takes some milliseconds to
// measure it.
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
