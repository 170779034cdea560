//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// An injected call in the middle of a restartable sequence aborts it, as any
// interruption does.
func TestCallAbortsRestartableSequence(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_rseq.c", "-O1"))
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	main, inside := p.Thread(g.pid), 0
	for range 400 {
		do(t, tr, func() error {
			// The other thread runs between the two calls, on the same CPU.
			err := p.briefly(main, func() error {
				before, err := main.Regs()
				if err != nil {
					return err
				}
				ip := before.Rip
				if _, err := p.Syscall(context.Background(), main, unix.SYS_SCHED_YIELD); err != nil {
					if errors.Is(err, ErrNoRoom) {
						return nil
					}
					return err
				}
				after, err := main.Regs()
				if err != nil {
					return err
				}
				if after.Rip != ip {
					inside++
				}
				return nil
			})
			if errors.Is(err, ErrNoThread) {
				return nil // it did not stop in time
			}
			return err
		})
	}
	if inside == 0 {
		t.Error("no call was injected into a sequence")
	}
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, output %q; %d sequences aborted", status, out, inside)
	}
}
