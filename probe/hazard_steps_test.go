package probe

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestSignalsInSyscallOfDetour sends signals to a Go program that kprobe has
// started: its detours ask the kernel for the thread's number, and a step over
// a system call ends with a trap of another kind.
func TestSignalsInSyscallOfDetour(t *testing.T) {
	c := &command{t: t, cmd: exec.Command(buildKprobe(t), "trace", "-q", "-o", "/dev/null", "p:s main.sum a=$arg1", "--", fixture.Build(t, "hazard_nets.go")), done: make(chan struct{})}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Not a pipe of c.cmd's: that ends with kprobe.
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c.cmd.Stdout, c.cmd.Stderr = w, newFile(t)
	c.start()
	_ = w.Close()
	lines := bufio.NewReader(out)
	var pid int
	if line, err := lines.ReadString('\n'); err != nil || !scanned(line, &pid) {
		t.Fatalf("the program printed %q: %v\n%s", line, err, c.said())
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		// The runtime takes it for a request to yield.
		if err := syscall.Kill(pid, syscall.SIGURG); err != nil {
			t.Fatalf("%v\n%.2000s", err, c.said())
		}
		time.Sleep(100 * time.Microsecond)
	}
	_ = in.Close()
	if line, err := lines.ReadString('\n'); err != nil || line != "done 0\n" {
		t.Errorf("the program printed %q (%v), want done 0\n%.2000s", line, err, c.said())
	}
}
