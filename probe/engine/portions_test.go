package engine

import (
	"testing"
	"time"
)

// A portion's steps become shorter if they take long, and longer if they take a moment.
func TestNextStep(t *testing.T) {
	for _, c := range []struct {
		step int
		took time.Duration
		want int
	}{
		{64, 0, 128}, {portionStep, 0, portionStep}, {64, portionTime / 8, 64}, {256, portionTime, 128}, {leastStep, portionTime, leastStep},
	} {
		if got := nextStep(c.step, c.took); got != c.want {
			t.Errorf("%d in %v: %d, want %d", c.step, c.took, got, c.want)
		}
	}
}
