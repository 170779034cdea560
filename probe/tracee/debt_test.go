//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// A thread that can't be stopped in an injected call is given up, and has its
// context, its seccomp rules and the program its bytes when it comes out.
func TestLateCallIsSettled(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_late.c", "-O1", "-lpthread"))
	l := g.line()
	if strings.HasPrefix(l, "refused") {
		fixture.Missing(t, "userfaultfd for faults in the kernel, which says %q", l)
	}
	var pipe, tid int
	if _, err := fmt.Sscan(l, &pipe, &tid); err != nil {
		t.Fatal(l, err)
	}
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		th := p.Thread(tid)
		th.interrupt()
		if !tr.pollFor(th, stopPatience) {
			return errors.New("it doesn't stop")
		}
		var late *LateError
		var err error
		for patience := 100 * time.Millisecond; late == nil && patience < patient; patience *= 4 { // until it comes to wait
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			_, err = p.Syscall(ctx, th, unix.SYS_FCNTL, uintptr(pipe), unix.F_SETPIPE_SZ, 8192)
			cancel()
			if !errors.As(err, &late) && !errors.Is(err, ErrTimeout) {
				break
			}
		}
		if late == nil || late.TID != tid || !errors.Is(err, ErrTimeout) || errors.Is(err, ErrGone) {
			t.Errorf("%v, want a call that it waits in", err)
		}
		if th.gone || th.debt == nil || stranded(p) == "" {
			t.Error("nothing is known to be owed")
		}
		over, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		if _, err := p.Syscall(over, nil, unix.SYS_GETPID); !errors.Is(err, ErrNoThread) {
			t.Errorf("another call gave %v", err)
		}
		return nil
	})
	g.in.Write([]byte{'\n'})
	eventually(t, "it is settled", func() (paid bool) {
		do(t, tr, func() error { paid = p.Thread(tid).debt == nil; return nil })
		return paid
	})
	if left := stranded(p); left != "" {
		t.Error(left)
	}
	do(t, tr, func() error {
		n, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
		if err != nil || int(n) != g.pid {
			t.Errorf("getpid gave %d, %v", n, err)
		}
		return nil
	})
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// stranded says where injected code lies in a process.
func stranded(p *Process) string {
	if at, _, ok := Injected(p.pid); ok {
		return fmt.Sprintf("injected code at %v", at)
	}
	return ""
}
