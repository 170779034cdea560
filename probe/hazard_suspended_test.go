package probe

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP28 stops the job that kprobe is, as a terminal and a shell do. The
// program runs on over its breakpoints, and all is as before when the job is
// continued. (What is written meanwhile is package pair's.)
func TestHazardP28(t *testing.T) {
	bin := buildKprobe(t)
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "2")
	for _, stop := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGSTOP} {
		c := &command{t: t, done: make(chan struct{})}
		c.cmd = exec.Command(bin, "trace", "--no-optimize", "-p", strconv.Itoa(sub.pid()), "p:in work n=$arg1 if n == 0x1234567812345678")
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.start()
		if !waitUntil(func() bool { return strings.Contains(c.said(), "1 probe is in") }) {
			t.Fatal(c.said())
		}
		group := -c.cmd.Process.Pid
		if err := syscall.Kill(group, stop); err != nil {
			t.Fatal(err)
		}
		if !waitUntil(func() bool { return stateOf(c.cmd.Process.Pid) == "T" }) {
			t.Fatalf("kprobe is not stopped: %s", c.said())
		}
		runsOn(t, sub.pid())
		if err := syscall.Kill(group, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		_ = c.cmd.Process.Signal(syscall.SIGINT) // fails only if it has ended
		<-c.done
		if said := c.said(); !strings.Contains(said, "process "+strconv.Itoa(sub.pid())+" runs on") {
			t.Errorf("it says %s", said)
		}
		checkClean(t, sub.pid())
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// stateOf is the letter of a process's state.
func stateOf(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // gone: no letter
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(len(rest), 1)]
}
