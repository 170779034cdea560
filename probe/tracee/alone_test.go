//go:build linux && amd64

package tracee

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// waitsTraced waits until a process stands in a stop of its tracer.
func waitsTraced(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "it stops for its tracer", func() bool { return taskState(pid, pid) == 't' })
}

// While probes are made ready nobody lets a process go on from its stops. One
// with a single thread, which waits with a signal, can make calls all the same,
// and meets the signal after, with what was sent with it.
func TestOnlyThreadWaitsWithSignal(t *testing.T) {
	exe := events(t)
	free := spawn(t, exe, "signals")
	free.in.Write([]byte{'\n'})
	want, _ := free.rest()

	g := spawn(t, exe, "signals")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	g.in.Write([]byte{'\n'})
	waitsTraced(t, g.pid)
	for range 3 {
		if n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID); err != nil || int(n) != g.pid {
			t.Fatalf("getpid gave %d, %v", n, err)
		}
	}
	running(t, tr, &recorder{t: t})
	if got, status := g.rest(); status != 0 || got != want {
		t.Errorf("status %d\n got %s\nwant %s", status, got, want)
	}
}

// A process whose only thread stands at the end of its fork can make the last
// calls of a detach.
func TestDetachOnlyThreadInFork(t *testing.T) {
	g := spawn(t, events(t), "forks")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	g.in.Write([]byte{'\n'})
	waitsTraced(t, g.pid)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	err := p.Detach(ctx, func([]*Thread) error {
		n, err := p.Syscall(ctx, nil, unix.SYS_GETPID)
		if err == nil && int(n) != g.pid {
			err = fmt.Errorf("getpid gave %d", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("it ended with %d", status)
	}
}
