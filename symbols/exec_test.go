package symbols

import (
	"os/exec"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// TestOpenedInExec opens processes at the moment of their execve(2), when
// exec.Cmd.Start has returned and the kernel has not mapped the program yet.
func TestOpenedInExec(t *testing.T) {
	sleep := fixture.NeedTool(t, "sleep")
	for i := range 500 {
		cmd := exec.Command(sleep, "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s, err := OpenProcess(cmd.Process.Pid, nil)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(s.Modules(), func(m *Module) bool { return m.Main }) {
			t.Fatalf("process %d has no main program", i)
		}
	}
}
