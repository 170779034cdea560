//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// A thread whose system calls are dispatched to the program makes none for kprobe, which says so, and doesn't blame seccomp
// rules. The program gets no signal.
func TestDispatched(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_seccomp.c", "-O1", "-static"), "dispatch")
	if l := g.line(); l != "ready" {
		t.Fatal(l)
	}
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		_, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
		if !errors.Is(err, ErrDispatched) || errors.Is(err, ErrSeccomp) {
			t.Errorf("getpid: %v", err)
		}
		return nil
	})
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
}
