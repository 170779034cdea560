package probe

import (
	"os"
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP55: a program's rules of seccomp kill it for restart_syscall, which the
// kernel has a sleeping thread make behind a stop. It lives, however often it is stopped,
// and probes that were left alone in it record.
func TestHazardP55(t *testing.T) {
	if os.Getuid() != 0 {
		fixture.Missing(t, "root, to suspend a program's rules")
	}
	sub := startSubject(t, fixture.Build(t, "hazard_restart.c", "-O2", "-pthread"))
	l, _ := engage(t, sub.pid(), Options{}, "p:w work n=$arg1:s32")
	for range 20 {
		before := l.stat("w").Hits
		if !waitUntil(func() bool { return l.stat("w").Hits > before+2 }) {
			t.Fatalf("no calls any more; the program: %s", endOf(sub.pid()))
		}
		if err := l.s.Arm(t.Context(), parseDefs(t, "r:back work v=$retval:s32")); err != nil {
			t.Fatal(err)
		}
		if err := l.s.Remove(t.Context(), l.s.Events()[1]); err != nil {
			t.Fatal(err)
		}
	}
	l.finish(sub.pid())
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:w work n=$arg1:s32")
	live := openedLive(t, sub.pid())
	if !waitUntil(func() bool { return live.Refresh() == nil && live.Stats()[0].Hits > 5 }) {
		t.Error("probes that were left record nothing")
	}
	if err := live.Remove(t.Context(), []string{"kprobes/w"}); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	sub.line()
	_ = sub.cmd.Wait() // the status tells
	if status := sub.cmd.ProcessState.ExitCode(); status != 7 {
		t.Errorf("the program ended with %d, want 7", status)
	}
}
