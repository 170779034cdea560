package probe

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP9 has a program set seccomp rules, for all of its threads or for one,
// after its probes were armed as jumps whose detours ask the kernel for the thread's
// name. The rules kill for that. The detours don't ask any more.
func TestHazardP9(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "hazard_seccomp.c", "-O2", "-lpthread")
	for _, who := range []string{"main", "thread"} {
		t.Run(who, func(t *testing.T) {
			sub := startSubject(t, prog)
			trace := newFile(t).Name()
			c := startKprobe(t, bin, "trace", "-v", "-o", trace, "-p", strconv.Itoa(sub.pid()), "p:in work $comm", `p:other work if comm != "none"`)
			if !waitUntil(func() bool { return strings.Contains(c.said(), "probes are in") }) {
				t.Fatal(c.said())
			}
			n := 0
			work := func() {
				t.Helper()
				n++
				sub.line()
				sub.expect(fmt.Sprint(n))
			}
			work()
			fmt.Fprintln(sub.in, who)
			sub.expect("set")
			if !waitUntil(func() bool { return strings.Contains(c.said(), "detours make no system calls any more") }) {
				t.Fatalf("the rules are not noticed: %s", c.said())
			}
			for range 20 {
				work()
			}
			_ = c.cmd.Process.Signal(syscall.SIGINT) // fails only if it has ended
			<-c.done
			if said := c.said(); !strings.Contains(said, fmt.Sprintf("%d events, 0 lost", 2*n)) {
				t.Errorf("it says %s, want %d events", said, 2*n)
			}
			work()
			sub.in.Close()
			_ = sub.cmd.Wait() // the status tells
			if status := sub.cmd.ProcessState.ExitCode(); status != 7 {
				t.Errorf("the program ended with %d, want 7", status)
			}
		})
	}
}
