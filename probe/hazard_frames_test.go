package probe

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// TestRecoverUnderHandler recovers a process in whose thread a signal's handler
// has interrupted an instruction's copy, after kprobe's death, and is still
// under way: the copy is there when it returns, and goes later.
func TestRecoverUnderHandler(t *testing.T) {
	bin := buildKprobe(t)
	sub := startSubject(t, fixture.Build(t, "hazard_frames.c", "-O2"))
	trace := newFile(t).Name()
	c := startKprobe(t, bin, "trace", "--no-optimize", "-o", trace, "-p", fmt.Sprint(sub.pid()), "p:t tick", "p:w reads")
	prints(t, trace)
	sub.line()
	hit := func() bool { b, err := os.ReadFile(trace); return err == nil && strings.Contains(string(b), " w: ") }
	if !waitUntil(hit) {
		t.Fatalf("no hit:\n%s", c.said())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.said())
		}
	})
	c.kill(killBoth)
	<-c.done
	if err := syscall.Kill(sub.pid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	sub.expect("in")
	if pids, err := Recover(context.Background(), []int{sub.pid()}); err != nil || len(pids) != 1 {
		t.Errorf("recovered %v: %v", pids, err)
	}
	sub.line()
	if got := sub.expect("done"); got != "done 0" {
		t.Errorf("the program printed %q", got)
	}
	if _, err := Recover(context.Background(), []int{sub.pid()}); err != nil {
		t.Errorf("recovered again: %v", err)
	}
	fallbacksLeft(t, sub.pid())
	sub.end()
}
