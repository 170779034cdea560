package probe

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP67 leaves a program that has forked while it was probed: the program has its own handler of SIGSEGV back. So
// have its children, born before and after.
func TestHazardP67(t *testing.T) {
	prog := fixture.Build(t, "fork_faults.c", "-O1")
	for _, o := range []Options{{}, {NoOptimize: true}, {Follow: true}} {
		sub := startSubject(t, prog)
		l := attach(t, sub.pid(), o, "p:in load", "r:out load")
		const want = "done 10 10"
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, want %q", got, want)
		}
		l.finish(sub.pid())
		if got := sub.work(); got != want {
			t.Errorf("afterwards the program printed %q, want %q", got, want)
		}
		sub.end()
	}
}
