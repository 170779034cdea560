package ring

// stepReadings is how many changes of the counter Step looks at.
const stepReadings = 2000

// Step returns by how many ns a counter advances at least, rounded; rate is ns per tick. Some
// processors' counters, AMD's among them, move in steps of many ticks: anything shorter than a
// step takes no time by them, or a whole step. 0 is a counter without visible steps, or one
// that stands still.
func Step(c Clock, rate float64) uint64 {
	came := map[uint64]int{}
	last := c.TSC()
	for seen, reads := 0, 0; seen < stepReadings && reads < 100*stepReadings; reads++ {
		now := c.TSC()
		if now > last {
			came[now-last]++
			seen++
		}
		last = now
	}
	// The distances that are common are multiples of the step: it is their
	// greatest common divisor. Where the thread was moved to another processor,
	// whose counter's steps lie in between, there are others.
	step := uint64(0)
	for d, n := range came {
		if n >= stepReadings/50 {
			step = divisor(step, d)
		}
	}
	return uint64(float64(step)*rate + 0.5)
}

// divisor is the greatest common divisor.
func divisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
