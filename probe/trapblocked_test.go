package probe

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// TestTrapsInside shows why a breakpoint needs a tracer (ARCHITECTURE, decision 17): where nobody
// traces, a program whose handler takes SIGTRAP dies at a breakpoint that a thread meets while it
// blocks the signal, however it came to block it.
func TestTrapsInside(t *testing.T) {
	prog := fixture.Build(t, "trap_blocked.c", "-O1", "-pthread")
	for _, how := range []string{"open", "mask", "raw", "handler", "inherited", "sigreturn"} {
		out, err := exec.Command(prog, how).Output()
		if how == "open" {
			if string(out) != "taken\n" {
				t.Errorf("open: it printed %q: %v", out, err)
			}
			continue
		}
		var x *exec.ExitError
		died := errors.As(err, &x) && x.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTRAP
		if !died || len(out) > 0 {
			t.Errorf("%s: it printed %q, and ended by %v; expected is SIGTRAP", how, out, err)
		}
	}
}
