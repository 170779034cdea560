package probe

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP48: kprobe leaves while threads are in its fallback handler for faults of the
// program's own, and read the table that goes. Nothing of it stays.
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
		checkClean(t, sub.pid())
	}
	runsOn(t, sub.pid())
	sub.end()
}

// Of the fallback handlers that stay, as the program may call them, a later session makes
// use again.
func TestHazardP48Again(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "sets_again.c", "-O1"))
	for range 5 {
		l, _ := engage(t, sub.pid(), Options{NoOptimize: true}, "p:w work")
		sub.line()
		if got := sub.expect("set"); got != "set 0" {
			t.Error(got)
		}
		if err := l.s.engine.Tracer.Do(func() error { l.s.engine.Targets[sub.pid()].LayFallbacksAgain(nil); return nil }); err != nil {
			t.Fatal(err)
		}
		l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks
		l.finish(sub.pid()) // of which one page is left
	}
	sub.in.Close()
	if err := sub.cmd.Wait(); sub.cmd.ProcessState.ExitCode() != 7 {
		t.Error(err)
	}
}
