package probe

import (
	"errors"
	"syscall"
	"testing"

	"kprobe/internal/procfs"
	"kprobe/probe/engine"
	"kprobe/probe/tracee"
)

// TestEndsWhileArmed: of several processes one ends while probes are planned. The others are probed. If none is
// left, the error says that.
func TestEndsWhileArmed(t *testing.T) {
	killed := func(sub *subject) func(*engine.Target) {
		return func(*engine.Target) {
			if err := syscall.Kill(sub.pid(), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			// It waits for the tracer then, whose thread this is.
			if !waitUntil(func() bool {
				st, err := procfs.Process(sub.pid()).Status()
				return err == nil && st.State() != 'R' && st.State() != 'S'
			}) {
				t.Error("the process does not end")
			}
		}
	}
	t.Run("one of two", func(t *testing.T) {
		for range 4 { // the order of processes varies
			ends, stays := startStill(t), startStill(t)
			s, err := Attach(t.Context(), []int{ends.pid(), stays.pid()}, Options{Log: testLog(t)})
			if err != nil {
				t.Fatal(err)
			}
			ran := whilePlanning(t, s, killed(ends))
			if err := s.Arm(t.Context(), parseDefs(t, "p:work work n=$arg1")); err != nil {
				t.Fatal(err)
			}
			if !ran.Load() {
				t.Error("nothing was planned")
			}
			l := collecting(t, s)
			l.run()
			stays.work()
			if !waitUntil(func() bool { return len(l.sink.all()) == 1000 }) {
				t.Errorf("%d hits, want 1000", len(l.sink.all()))
			}
			l.stop()
			<-l.done
			if err := l.s.Close(t.Context()); err != nil || l.err != nil {
				t.Error(err, l.err)
			}
			checkClean(t, stays.pid())
			stays.quit()
		}
	})
	t.Run("the only one", func(t *testing.T) {
		sub := startStill(t)
		s := sub.attached(Options{})
		whilePlanning(t, s, killed(sub))
		if err := s.Arm(t.Context(), parseDefs(t, "p:work work n=$arg1")); !errors.Is(err, tracee.ErrGone) {
			t.Errorf("%v, want %v", err, tracee.ErrGone)
		}
	})
}
