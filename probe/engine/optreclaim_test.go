package engine

import (
	"testing"
	"time"
)

// TestReclaimPause: however long a look for abandoned instances takes, the threads run for most of the time.
func TestReclaimPause(t *testing.T) {
	for _, took := range []time.Duration{0, time.Microsecond, reclaimEvery, 40 * time.Millisecond, time.Second} {
		pause := reclaimPause(took)
		if pause < reclaimEvery || reclaimShare*took > took+pause {
			t.Errorf("after %v: %v", took, pause)
		}
	}
}
