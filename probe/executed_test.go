package probe

import (
	"errors"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/tracee"
)

// TestArmDuringExec puts probes into a program that executes itself all the time:
// they are in, or the error says what happened; the program doesn't notice.
func TestArmDuringExec(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "exec_loop.c", "-O2"), "100000", "100000")
	executed := 0
	for range full(12, 300) {
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{})
		if err == nil {
			err = s.Arm(t.Context(), parseDefs(t, "p:w work a=$arg1", "r:x work"))
			var x *ExecutedError
			if errors.As(err, &x) && x.PID == sub.pid() {
				executed, err = executed+1, nil
			}
			if cerr := s.Close(t.Context()); cerr != nil {
				t.Errorf("close: %v", cerr)
			}
		}
		if err != nil && !errors.Is(err, tracee.ErrGone) {
			t.Errorf("while the program executes itself: %v", err)
		}
	}
	t.Logf("%d times it executed itself in between", executed)
	runsOn(t, sub.pid())
	if s := leftBehind(sub.pid()); s != "" && !waitUntil(func() bool { return leftBehind(sub.pid()) == "" }) {
		t.Errorf("afterwards %s", s)
	}
}
