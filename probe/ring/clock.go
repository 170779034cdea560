package ring

import "math/bits"

// Clock is where time comes from.
type Clock interface {
	TSC() uint64 // the counter that detours read
	Mono() int64 // CLOCK_MONOTONIC, ns
}

// Sample is one moment on both clocks.
type Sample struct {
	TSC uint64
	NS  int64
}

// sampleTries is how often TakeSample tries to read both clocks without an interruption between
// them.
const sampleTries = 8

// TakeSample reads both clocks as close together as it can: of several tries it takes the one
// with the shortest time between its two counter readings.
func TakeSample(c Clock) Sample {
	var best Sample
	gap := ^uint64(0)
	for range sampleTries {
		a := c.TSC()
		ns := c.Mono()
		b := c.TSC()
		if d := b - a; d < gap {
			gap, best = d, Sample{a + d/2, ns}
		}
	}
	return best
}

// line is ns = at.NS + (tsc - at.TSC) * mult / 2^32.
type line struct {
	at   Sample
	mult uint64
}

func (l line) ns(tsc uint64) int64 {
	if tsc >= l.at.TSC {
		return l.at.NS + scale(tsc-l.at.TSC, l.mult)
	}
	return l.at.NS - scale(l.at.TSC-tsc, l.mult)
}

// scale is d*mult/2^32, clamped to what int64 holds: d may be anything.
func scale(d, mult uint64) int64 {
	hi, lo := bits.Mul64(d, mult)
	if hi >= 1<<31 {
		return 1<<63 - 1
	}
	return int64(hi<<32 | lo>>32)
}

// Calibration converts the time stamp counter to CLOCK_MONOTONIC. It is a chain of lines
// without steps: every Update bends the line so that it meets the true clock one interval
// later. Times before the bend keep their values. The zero value is not usable; use Calibrate.
// It is not safe for concurrent use.
type Calibration struct {
	first Sample
	cur   line
	prev  line // valid for times before cur.at
	rate  uint64
}

// MinSpan is the smallest distance in ns between two samples from which a rate can be taken: 2
// ms bound its error to some 20 parts in a million.
const MinSpan = 2_000_000

// Calibrate returns the conversion through two samples. b must be later than a by at least
// MinSpan. ok is false if it isn't, or if a clock stood still.
func Calibrate(a, b Sample) (c *Calibration, ok bool) {
	rate, ok := slope(a, b)
	if !ok {
		return nil, false
	}
	l := line{at: b, mult: rate}
	return &Calibration{first: a, cur: l, prev: l, rate: rate}, true
}

// CalibrationOf returns the conversion of time stamps by a header's moment and a later one, or
// by the header's own rate if now is the zero Sample. ok is false if neither works.
func (h *Header) CalibrationOf(now Sample) (*Calibration, bool) {
	if c, ok := Calibrate(h.Time, now); ok {
		return c, true
	}
	if h.Rate == 0 || bits.Len64(h.Rate) > 62 {
		return nil, false
	}
	l := line{at: h.Time, mult: h.Rate}
	return &Calibration{first: h.Time, cur: l, prev: l, rate: h.Rate}, true
}

// slope is ns per tick in 1/2^32 between the samples.
func slope(a, b Sample) (uint64, bool) {
	if b.TSC <= a.TSC || b.NS-a.NS < MinSpan {
		return 0, false
	}
	ns, ticks := uint64(b.NS-a.NS), b.TSC-a.TSC
	if ns>>32 >= ticks {
		return 0, false // slower than one tick in four seconds: no counter
	}
	q, _ := bits.Div64(ns>>32, ns<<32, ticks)
	return q, q != 0
}

// Update takes a sample of the present moment into account. No times later than it may have
// been converted yet. If it is not later than the last sample by MinSpan, nothing changes.
func (c *Calibration) Update(s Sample) {
	rate, ok := slope(c.first, s)
	span := s.NS - c.cur.at.NS
	if !ok || span < MinSpan || s.TSC <= c.cur.at.TSC {
		return
	}
	here := c.cur.ns(s.TSC)
	// Meet the true clock after as long as the last interval was. The rate is
	// bent by an eighth at most, so that time never stands still.
	d := s.NS - here
	d = max(min(d, span/8), -span/8)
	num := uint64(1 << 20) // 1 + d/span in 1/2^20
	if span < 1<<42 {
		num = uint64(span+d) << 20 / uint64(span)
	}
	hi, lo := bits.Mul64(rate, num)
	c.prev = c.cur
	c.cur = line{at: Sample{s.TSC, here}, mult: hi<<44 | lo>>20}
	c.rate = rate
}

// NS converts a counter value to CLOCK_MONOTONIC in ns. The results never decrease if the
// counter values don't. 0 stands for a counter that could not be read: its time is 0, too.
func (c *Calibration) NS(tsc uint64) int64 {
	if tsc == 0 {
		return 0
	}
	if tsc >= c.cur.at.TSC {
		return c.cur.ns(tsc)
	}
	return min(c.prev.ns(tsc), c.cur.at.NS)
}

// Ticks returns how many ticks of the counter pass in ns nanoseconds.
func (c *Calibration) Ticks(ns int64) uint64 {
	if ns <= 0 {
		return 0
	}
	hi, lo := uint64(ns)>>32, uint64(ns)<<32
	if hi >= c.rate {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, c.rate)
	return q
}
