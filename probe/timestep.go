package probe

import (
	"time"

	"kprobe/probe/ring"
)

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
