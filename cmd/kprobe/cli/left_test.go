package cli

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// endedCommand is a session whose command has ended while its probes were taken out.
type endedCommand struct {
	Session
	ended bool
}

func (e endedCommand) CommandStatus() (syscall.WaitStatus, bool) { return 0, e.ended }

// TestEndCommand: --kill-on-exit ends the command that runs on, and sends nothing to
// the number of one that has ended, which may be another process's by then.
func TestEndCommand(t *testing.T) {
	for _, ended := range []bool{true, false} {
		cmd := exec.Command(fixture.NeedTool(t, "sleep"), "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		o := &sessionOptions{kill: true, started: pid}
		rest := o.endCommand(endedCommand{ended: ended}, &messages{}, []int{1, pid})
		if !slices.Equal(rest, []int{1}) {
			t.Errorf("ended %v: %v are said to run on, want 1", ended, rest)
		}
		if lives := syscall.Kill(pid, 0) == nil; lives != ended {
			t.Errorf("ended %v: the process with its number lives: %v", ended, lives)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
