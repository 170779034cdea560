package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// TestCtrlC: ^C at a terminal ends a command and its trace, wherever kprobe is: while
// places are looked up, for which the command stands still, and when its probes are
// in. The status is that of a command that SIGINT has ended, and nothing is left.
func TestCtrlC(t *testing.T) {
	kprobe, loop := program(t), fixture.Build(t, "cli_loop.c", "-O1")
	for _, later := range []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond} {
		cmd := exec.Command(kprobe, "profile", "r libc:*", "--", loop, "0")
		term := startInTerminal(t, cmd)
		command := 0
		for end := time.Now().Add(3 * time.Minute); command == 0; time.Sleep(time.Millisecond) {
			for _, tracer := range procfs.Process(cmd.Process.Pid).AllChildren() {
				for _, pid := range procfs.Process(tracer).AllChildren() {
					if name, err := procfs.Process(pid).Comm(); err == nil && strings.HasPrefix(name, "cli_loop") {
						command = pid
					}
				}
			}
			if time.Now().After(end) {
				t.Fatal("no command was started")
			}
		}
		time.Sleep(later)
		term.typed(t, "\x03")
		term.await(t, fmt.Sprintf("process %d was killed by SIGINT", command))
		_ = cmd.Wait()
		if status := cmd.ProcessState.ExitCode(); status != 128+int(unix.SIGINT) {
			t.Errorf("%v after the command came to be: status %d", later, status)
		}
		if _, err := os.Stat(procfs.Process(command).Path("stat")); err == nil {
			t.Errorf("%v after the command came to be: it is left", later)
		}
		if err := unix.Kill(-cmd.Process.Pid, 0); err == nil {
			t.Errorf("%v after the command came to be: the job is left", later)
		}
	}
}
