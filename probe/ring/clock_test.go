package ring

import (
	"math/rand/v2"
	"testing"
)

func TestCalibrationFollows(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ratio float64 // ns per tick
	}{{"3 GHz", 1.0 / 3}, {"1 GHz", 1}, {"25 MHz", 40}, {"slow", 1000}} {
		t.Run(tt.name, func(t *testing.T) {
			const tsc0, ns0 = 1 << 45, 1 << 52
			at := func(ns int64) Sample { return Sample{tsc0 + uint64(float64(ns)/tt.ratio), ns0 + ns} }
			c, ok := Calibrate(at(0), at(MinSpan))
			if !ok {
				t.Fatal("not calibrated")
			}
			for ns := int64(MinSpan); ns < 20e9; ns += 1e9 {
				c.Update(at(ns))
				s := at(ns + 5e8)
				if d := c.NS(s.TSC) - s.NS; d > 2000 || d < -2000 {
					t.Errorf("after %d ms: off by %d ns", ns/1e6, d)
				}
			}
			if got, want := float64(c.Ticks(1e9)), 1e9/tt.ratio; got < want*0.999 || got > want*1.001 {
				t.Errorf("%v ticks a second, want %v", got, want)
			}
		})
	}
}

// Whatever the samples, time never runs backwards.
func TestCalibrationIsMonotonic(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := Sample{1 << 30, 1 << 30}
		next := func() Sample {
			s.TSC += 5e6 + rnd.Uint64N(5e7)
			s.NS += 3e6 + rnd.Int64N(5e7)
			return s
		}
		first := s
		c, ok := Calibrate(first, next())
		if !ok {
			t.Fatal("not calibrated")
		}
		tsc := s.TSC
		last := c.NS(tsc)
		for range 300 {
			if rnd.IntN(10) == 0 && tsc >= s.TSC {
				// A sample is of now: later than every record read so far.
				s.TSC = max(s.TSC, tsc)
				c.Update(next())
			}
			tsc += rnd.Uint64N(1e6)
			if ns := c.NS(tsc); ns < last {
				t.Fatalf("%d after %d", ns, last)
			} else {
				last = ns
			}
		}
	}
}

func TestCalibrationRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b Sample
	}{
		{"too close", Sample{0, 0}, Sample{1e6, MinSpan - 1}},
		{"backwards", Sample{1e6, 0}, Sample{0, MinSpan}},
		{"standing", Sample{5, 0}, Sample{5, 1e9}},
		{"hardly counting", Sample{5, 0}, Sample{6, 1e12}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, ok := Calibrate(tt.a, tt.b); ok {
				t.Error("calibrated")
			}
		})
	}
}

func TestSystemClock(t *testing.T) {
	a := TakeSample(SystemClock{})
	b := a
	for b.NS-a.NS < 5*MinSpan {
		b = TakeSample(SystemClock{})
	}
	c, ok := Calibrate(a, b)
	if !ok {
		t.Fatal("not calibrated")
	}
	s := TakeSample(SystemClock{})
	if d := c.NS(s.TSC) - s.NS; d > 1e6 || d < -1e6 {
		t.Errorf("off by %d ns", d)
	}
}

func FuzzCalibration(f *testing.F) {
	f.Add(uint64(1), int64(2), uint64(1<<40), int64(1<<40), uint64(1<<50), int64(1<<41), uint64(77))
	f.Fuzz(func(t *testing.T, t1 uint64, n1 int64, t2 uint64, n2 int64, t3 uint64, n3 int64, at uint64) {
		c, ok := Calibrate(Sample{t1, n1}, Sample{t2, n2})
		if !ok {
			return
		}
		c.Update(Sample{t3, n3})
		c.NS(at)
		c.Ticks(n3)
	})
}

// countedClock counts how often it is asked.
type countedClock struct {
	fakeClock
	asked int
}

func (c *countedClock) Mono() int64 { c.asked++; return c.fakeClock.Mono() }

// TestCalibrationIsRare: a reader that looks all the time compares the clocks
// often at first, and then once a second.
func TestCalibrationIsRare(t *testing.T) {
	c := &countedClock{}
	x := newBench(t, 1, Options{Clock: c})
	const seconds, looks = 20, 1000 // a second
	for range seconds * looks {
		c.advance(1e9 / looks)
		if _, err := x.r.Poll(func(*Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if x.r.Calibration() == nil {
		t.Fatal("nothing is calibrated")
	}
	// Each look asks once for the time, each comparison sampleTries times.
	if most := seconds*looks + 3*seconds*sampleTries; c.asked > most || c.asked < seconds*looks+seconds*sampleTries/2 {
		t.Errorf("the clock was asked %d times in %d looks", c.asked, seconds*looks)
	}
}
