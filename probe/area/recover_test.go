package area

import (
	"os/exec"
	"runtime"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/tracee"
)

// Nothing is left of a process that has ended, also while it waits for its parent: a forked child may end at any time.
func TestRecoverZombie(t *testing.T) {
	cmd := exec.Command(fixture.NeedFile(t, "/bin/true"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	pid := cmd.Process.Pid
	for procfs.StartTime(pid) != 0 { // a zombie has none
		runtime.Gosched()
	}
	tr, err := tracee.New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	_, err = tr.Attach(t.Context(), pid)
	if !hasEnded(err) {
		t.Errorf("the error of attaching, %v, doesn't say that it has ended", err)
	}
	chosen := &Chosen{}
	if err := chosen.pending(err); !hasEnded(err) || len(chosen.Pending) > 0 {
		t.Errorf("places of it are pending: %q, %v", chosen.Pending, err)
	}
}
