package probe

import (
	"bufio"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestSignalsInSyscallOfDetour sends signals to a Go program that kprobe has
// started: its detours ask the kernel for the thread's number, and a step over
// a system call ends with a trap of another kind.
func TestSignalsInSyscallOfDetour(t *testing.T) {
	s, in, out := started(t, fixture.Build(t, "hazard_nets.go"), "p:s main.sum a=$arg1 if a==20")
	var pid int
	for _, tg := range s.engine.Targets {
		tg.NoMoreRenewals() // the jumps stay as they are
		pid = tg.Proc.PID()
	}
	l := collecting(t, s)
	l.run()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || !scanned(line, &pid) {
		t.Fatalf("the program printed %q: %v", line, err)
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		// The runtime takes it for a request to yield.
		if err := syscall.Kill(pid, syscall.SIGURG); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
	}
	_ = in.Close()
	if line, err := lines.ReadString('\n'); err != nil || line != "done 0\n" {
		t.Errorf("the program printed %q (%v), want done 0", line, err)
	}
	<-l.done
}
