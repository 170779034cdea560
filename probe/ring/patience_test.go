package ring

import (
	"testing"
	"time"
)

// TestPatience: a ring that is being read is waited for, up to a share of all time;
// one that isn't read is not.
func TestPatience(t *testing.T) {
	now := time.Unix(1000, 0)
	slept := time.Duration(0)
	p := Patience{sleep: func(d time.Duration) { slept += d; now = now.Add(d) }}
	taken := uint64(0)
	for i := range 1000 { // it is read all the time
		taken = uint64(i)
		p.Wait(now, taken)
	}
	if slept < maxPatience-2*patienceStep || slept > maxPatience+2*patienceStep {
		t.Errorf("a burst was waited for for %v", slept)
	}
	slept = 0
	for range 10_000 { // it is stuck
		now = now.Add(10 * time.Millisecond)
		if p.Wait(now, taken) {
			t.Fatal("it waits though nothing was read since")
		}
	}
	for i := range 100_000 { // slow: read a little, all the time
		now = now.Add(100 * time.Microsecond)
		p.Wait(now, taken+uint64(i)+1)
	}
	if all := 100_000*100*time.Microsecond + slept; slept > all/patienceShare+2*maxPatience || slept == 0 {
		t.Errorf("%v of %v went into waiting", slept, all)
	}
}
