//go:build linux && amd64

package tracee

import (
	"testing"
	"time"
)

// TestCloseEndsRun: Close ends a Run that nobody has cancelled, also one that waits for
// processes to come.
func TestCloseEndsRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		stays bool
		procs int
	}{
		{"process", false, 1}, {"process and others to come", true, 1}, {"no process, others to come", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTracer(t)
			for range c.procs {
				attach(t, tr, spawn(t, events(t), "idle").pid)
			}
			if c.stays {
				if err := tr.Stay(); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- tr.Run(t.Context(), &recorder{t: t}) }()
			eventually(t, "the run has begun", func() (on bool) {
				do(t, tr, func() error { on = tr.running; return nil })
				return on
			})
			closed := make(chan error, 1)
			go func() { closed <- tr.Close() }()
			for what, done := range map[string]chan error{"Close": closed, "Run": ended} {
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
				case <-time.After(time.Minute):
					t.Fatalf("%s does not return", what)
				}
			}
		})
	}
}
