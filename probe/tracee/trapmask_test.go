//go:build linux && amd64

package tracee

import (
	"bufio"
	"context"
	"maps"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// masks reads the blocked signals of a process's threads.
func masks(t *testing.T, pid int) map[int]string {
	t.Helper()
	tids, err := procfs.Process(pid).Threads()
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]string{}
	for _, tid := range tids {
		st, err := procfs.Thread(pid, tid).Status()
		if err != nil {
			t.Fatal(err)
		}
		out[tid] = st.Field("SigBlk")
	}
	return out
}

// TestOpenTraps: threads that block SIGTRAP take it while they are traced, and
// block it again afterwards.
func TestOpenTraps(t *testing.T) {
	cmd := exec.Command(fixture.Build(t, "probe_forever.c", "-O2", "-lpthread"), "2", "block")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if l, err := bufio.NewReader(out).ReadString('\n'); l != "ready\n" {
		t.Fatal(l, err)
	}
	pid := cmd.Process.Pid
	// A thread that is about to begin blocks glibc's own signals, too: 32 is one.
	begun := func() bool {
		for _, m := range masks(t, pid) {
			if v, err := strconv.ParseUint(m, 16, 64); err != nil || v&(1<<31) != 0 {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(patient); !begun(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("threads do not begin: %v", masks(t, pid))
		}
	}
	before := masks(t, pid)
	tr := newTracer(t)
	p := attach(t, tr, pid)
	stop := running(t, tr, newBreakpoint(t, 0))
	blocking := func() (n int) {
		do(t, tr, func() error {
			for _, th := range p.Threads() {
				if th.blocksTrap() {
					n++
				}
			}
			return nil
		})
		return n
	}
	if n := blocking(); n != 2 {
		t.Errorf("%d threads block SIGTRAP, want 2", n)
	}
	for range 2 {
		if err := p.OpenTraps(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := blocking(); n != 0 {
			t.Errorf("%d threads block SIGTRAP still", n)
		}
	}
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if after := masks(t, pid); !maps.Equal(after, before) {
		t.Errorf("masks are %v, and were %v", after, before)
	}
}

// A thread that is in a handler of SIGTRAP when its mask is opened, and returns from there,
// doesn't block it afterwards.
func TestOpenTrapsInHandler(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "returns")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, newBreakpoint(t, 0))
	if err := p.OpenTraps(context.Background()); err != nil {
		t.Fatal(err)
	}
	g.in.Write([]byte{'\n'})
	if l := g.line(); l != "returned" {
		t.Fatalf("it printed %q", l)
	}
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
