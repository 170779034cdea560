package probe

import (
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestHazardD21: a thread that leaves a detour step by step, because a signal has come, copies a
// text up to memory that isn't there. The program must not see that fault.
func TestHazardD21(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "hazard_stepped_fault.c", "-O2"))
	l, hits := engage(t, sub.pid(), Options{}, "p:hit hit s=+0($arg1):string")
	time.Sleep(3 * time.Second)
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no faults", got)
	}
	l.finish(sub.pid())
	if hits.hits.Load() < 50 {
		t.Errorf("%d hits", hits.hits.Load())
	}
	sub.end()
}
