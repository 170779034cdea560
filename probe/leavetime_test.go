package probe

import (
	"testing"
	"time"
)

// TestLeaveTime: a million places may take longer to be restored than a few.
func TestLeaveTime(t *testing.T) {
	for _, c := range []struct {
		places []int
		want   time.Duration
	}{{nil, 30 * time.Second}, {[]int{1, 2}, 30 * time.Second}, {[]int{65535, 1}, time.Minute}, {[]int{1000000}, 480 * time.Second}} {
		var stats []Stats
		for _, n := range c.places {
			stats = append(stats, Stats{Places: n})
		}
		if got := LeaveTime(stats); got != c.want {
			t.Errorf("%v places: %v, want %v", c.places, got, c.want)
		}
	}
}
