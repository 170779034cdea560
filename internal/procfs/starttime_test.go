package procfs

import (
	"os/exec"
	"testing"
)

// TestZombieHasNoStart says that a process that has ended isn't taken for one
// that runs, though its parent has not taken notice.
func TestZombieHasNoStart(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if StartTime(c.Process.Pid) == 0 {
		t.Error("a process that runs has no start")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the end of its start", func() bool { return StartTime(c.Process.Pid) == 0 })
	_ = c.Wait()
}
