package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP61Closes: a program closes all descriptors that it doesn't know, and opens files all the time. kprobe's
// memory file is open there for a moment, and gets in nobody's way: each session has its file, and no file
// of the program's is closed or written to.
func TestHazardP61Closes(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "hazard_closes.c", "-O2", "-pthread"))
	for i := range full(12, 300) {
		o := Options{Detach: true}
		if i%3 == 1 {
			o.Keep = filepath.Join("/dev/shm", fmt.Sprintf("kprobe-closes-%d-%d", sub.pid(), i))
		}
		if o.Keep != "" {
			defer os.Remove(o.Keep)
		}
		leaveIn(t, sub.pid(), o, "p:closes/work work n=$arg1:u64")
		sub.line()
		sub.expect("whole")
		sub.takenOut()
	}
	sub.in.Close()
	_ = sub.cmd.Wait() // the status tells
	if status := sub.cmd.ProcessState; status.ExitCode() != 7 {
		t.Errorf("the program ended with %v, want 7", status)
	}
}
