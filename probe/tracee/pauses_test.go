//go:build linux && amd64

package tracee

import (
	"context"
	"os/exec"
	"testing"
	"time"
)

// TestPauses: one inside another is part of it, and so is what a detach
// prepares; what one thread's stop takes is none.
func TestPauses(t *testing.T) {
	const pause = 20 * time.Millisecond
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	tr := newTracer(t)
	p := attach(t, tr, cmd.Process.Pid)
	if longest, sum := tr.Pauses(); longest != 0 || sum != 0 {
		t.Errorf("after attaching %v, in all %v", longest, sum)
	}
	ctx := context.Background()
	begin := time.Now()
	wait := func([]*Thread) error { time.Sleep(pause); return nil }
	err := p.WithStopped(ctx, func([]*Thread) error {
		time.Sleep(pause)
		return p.WithStopped(ctx, wait)
	})
	if err != nil {
		t.Fatal(err)
	}
	longest, sum := tr.Pauses()
	if longest < 2*pause || longest != sum || sum > time.Since(begin) {
		t.Errorf("two pauses of %v, one in the other: %v, in all %v; it took %v", pause, longest, sum, time.Since(begin))
	}
	if err := p.Detach(ctx, wait); err != nil {
		t.Fatal(err)
	}
	before := longest
	longest, sum = tr.Pauses()
	if longest < before || sum < before+pause || sum > time.Since(begin) {
		t.Errorf("with a detach's %v: %v, in all %v; before %v", pause, longest, sum, before)
	}
}
