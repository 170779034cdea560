//go:build linux && amd64

package tracee

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// leaderMain is a tracer that leads threads on which fault, behind the instruction,
// and is killed before it lets them go: at the first, or with their registers
// changed.
func leaderMain() {
	pid, _ := strconv.Atoi(os.Getenv("TRACEE_TEST_LEADER"))
	tr, err := New()
	if err != nil {
		panic(err)
	}
	if _, err := tr.Attach(context.Background(), pid); err != nil {
		panic(err)
	}
	h := &recorder{brk: func(th *Thread) Verdict {
		r, err := th.Regs()
		if err != nil {
			return Resume
		}
		r.Rip++
		r.Rax = 7
		if at := os.Getenv("TRACEE_TEST_LEADER_AT"); at == "set back" {
			th.collectAtTrap()
		} else if err := th.lead(0); err != nil {
			panic(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}, sig: func(th *Thread, si *Siginfo) Verdict {
		r, err := th.Regs()
		if err != nil || si.Signal() != syscall.SIGSEGV {
			return Deliver
		}
		r.Rip++
		if err := th.lead(0); err != nil {
			panic(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}}
	os.Stdout.WriteString("ready\n")
	if err := tr.Run(context.Background(), h); err != nil {
		panic(err)
	}
}

// A tracer that is killed when it has led a thread out of a fault, and has not yet
// let it go on, doesn't leave it the fault's signal.
func TestKilledLeadingOn(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "fault")
	for range 5 {
		cmd, err := otherTracer(t, "TRACEE_TEST_LEADER="+strconv.Itoa(g.pid))
		if err != nil {
			t.Fatalf("the tracer failed: %v", err)
		}
		if _, err := g.in.Write([]byte{'!'}); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the tracer ended otherwise than killed: %v", err)
		}
		if s, err := g.out.ReadString('\n'); s != "on\n" {
			t.Fatalf("the program says %q: %v", s, err)
		}
	}
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
}

// A tracer that changes more registers at an int3 than the instruction pointer is
// killed in the midst of it, or behind it: the thread has all of them, or meets the
// int3 anew with its own.
func TestKilledChanging(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_int3.c", "-O1"))
	for _, c := range []struct{ at, want string }{{"set back", "trapped"}, {"", "went on"}, {"set back", "trapped"}} {
		cmd, err := otherTracer(t, "TRACEE_TEST_LEADER="+strconv.Itoa(g.pid), "TRACEE_TEST_LEADER_AT="+c.at)
		if err != nil {
			t.Fatalf("the tracer failed: %v", err)
		}
		if _, err := g.in.Write([]byte{'!'}); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the tracer ended otherwise than killed: %v", err)
		}
		if s, err := g.out.ReadString('\n'); s != c.want+"\n" {
			t.Fatalf("killed at %q, the program says %q: %v", c.at, s, err)
		}
	}
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
}
