package probe

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP48: kprobe leaves while threads are in its fallback handler for faults of the
// program's own, and read the table that goes.
func TestHazardP48(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "fault_storm.c", "-O2", "-pthread"))
	for range 25 {
		s := sub.attached(Options{})
		if err := s.Arm(t.Context(), parseDefs(t, "p:w work")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runsOn(t, sub.pid())
	sub.end()
}
