//go:build linux && amd64

package tracee

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// A process whose tracer was killed can be traced at once, though the kernel has
// not let it go yet; one that has another tracer that lives can't.
func TestAttachAfterKill(t *testing.T) {
	tr := newTracer(t)
	g := spawn(t, events(t), "idle")
	for range 4 {
		cmd := exec.Command(fixture.Build(t, "tracee_seizer.c", "-O1"), strconv.Itoa(g.pid))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		var traced *TracedError
		if _, err := tr.Attach(context.Background(), g.pid); !errors.As(err, &traced) || traced.By != cmd.Process.Pid {
			t.Errorf("with another tracer: %v", err)
		}
		if err := syscall.Kill(cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p, err := tr.Attach(context.Background(), g.pid)
		if err != nil {
			t.Fatalf("after its tracer was killed: %v", err)
		}
		if err := p.Detach(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
}

func TestEnding(t *testing.T) {
	if ending(os.Getpid()) {
		t.Error("this process ends")
	}
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a zombie ends", func() bool { return ending(cmd.Process.Pid) })
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !ending(cmd.Process.Pid) {
		t.Error("who is gone doesn't end")
	}
}
