package ring

import "testing"

// stepping is a counter that a reading takes some ticks of, and that shows only
// whole steps. Every 500th time it is off by ticks.
type stepping struct{ now, reading, step, off, n uint64 }

func (c *stepping) TSC() uint64 {
	c.now += c.reading
	c.n++
	return c.now/c.step*c.step + c.n%500/499*c.off
}
func (c *stepping) Mono() int64 { return int64(c.now) }

func TestStep(t *testing.T) {
	for _, x := range []struct {
		c    stepping
		rate float64
		want uint64
	}{
		{stepping{0, 9, 1, 0, 0}, 0.5, 5}, // it can't be told from steps of a reading's time
		{stepping{7, 7, 26, 1, 0}, 10.0 / 26, 10},
		{stepping{7, 50, 26, 1, 0}, 10.0 / 26, 10},
		{stepping{1 << 60, 3, 1 << 40, 0, 0}, 1, 0},
		{stepping{0, 0, 1, 0, 0}, 1, 0},
	} {
		c := x.c
		if got := Step(&c, x.rate); got != x.want {
			t.Errorf("%+v: %d ns, want %d", x.c, got, x.want)
		}
	}
	if s := Step(SystemClock{}, 0.4); s > 1000 {
		t.Errorf("this machine's counter moves in steps of %d ns", s)
	}
}
