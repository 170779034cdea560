package probe

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMemoryLimits arms in programs that may have no more memory: the error says which limit
// it is, the program goes on, and with the limit lifted the probe is armed.
func TestMemoryLimits(t *testing.T) {
	for name, resource := range map[string]int{"RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_AS": unix.RLIMIT_AS} {
		t.Run(name, func(t *testing.T) {
			s := startRecorded(t, 1, "paced")
			var before unix.Rlimit
			if err := unix.Prlimit(s.pid(), resource, &unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}, &before); err != nil {
				t.Fatal(err)
			}
			arm := func() error {
				session, err := Attach(t.Context(), []int{s.pid()}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				err = session.Arm(t.Context(), parseDefs(t, recordedHit))
				return errors.Join(err, session.Close(t.Context()))
			}
			var limit *LimitError
			if err := arm(); !errors.As(err, &limit) || limit.Name != name || limit.PID != s.pid() || limit.Bytes != 4096 || !errors.Is(err, unix.ENOMEM) {
				t.Errorf("%+v: %v", limit, err)
			}
			checkLeft(t, s.pid(), true)
			if err := unix.Prlimit(s.pid(), resource, &before, nil); err != nil {
				t.Fatal(err)
			}
			if err := arm(); err != nil {
				t.Error(err)
			}
			checkLeft(t, s.pid(), true)
			s.line()
			if !waitUntil(func() bool { _, returned := s.counted(); return returned[0] > 0 }) {
				t.Error("the program makes no calls")
			}
		})
	}
}
