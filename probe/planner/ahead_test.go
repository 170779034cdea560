package planner

import (
	"testing"
	"time"
)

// Results come in order, whatever is done first; who asks for no more waits for nothing
// that hasn't begun.
func TestAhead(t *testing.T) {
	next, stop := ahead(1000, func(i int) int {
		if i%7 == 0 {
			time.Sleep(10 * time.Microsecond)
		}
		return i * i
	})
	for i := range 500 {
		if got := next(); got != i*i {
			t.Errorf("result %d is %d", i, got)
		}
	}
	stop()
	for _, n := range []int{1, 2, 7, 8, 9, 129, 255} {
		next, stop = ahead(n, func(i int) int { return i })
		for i := range n {
			if got := next(); got != i {
				t.Errorf("result %d of %d is %d", i, n, got)
			}
		}
		stop()
	}
	_, stop = ahead(0, func(int) int { panic("there is nothing to be done") })
	stop()
}
