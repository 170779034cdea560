//go:build linux && amd64

package tracee

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
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

// EndSequence empties a thread's rseq_cs if the description lies where it is told, and
// leaves it as it is otherwise.
func TestEndSequence(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_rseq.c", "-O1"))
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	main, inside := p.Thread(g.pid), 0
	eventually(t, "the thread was met in a sequence", func() bool {
		do(t, tr, func() error {
			err := p.briefly(main, func() error {
				area, signature := main.RseqArea()
				if area == 0 || signature != 0x53053053 {
					t.Errorf("area %#x with signature %#x", area, signature)
				}
				cs := symbols.Addr(area + rseqCS)
				read := func() (at uint64) {
					var b [8]byte
					if _, err := p.ReadMemory(b[:], cs); err != nil {
						t.Fatal(err)
					}
					return binary.LittleEndian.Uint64(b[:])
				}
				was := read()
				if was == 0 {
					return nil
				}
				inside++
				if err := main.EndSequence(func(symbols.Addr) bool { return false }); err != nil || read() != was {
					t.Errorf("%v: %#x became %#x", err, was, read())
				}
				if err := main.EndSequence(func(a symbols.Addr) bool { return a == symbols.Addr(was) }); err != nil || read() != 0 {
					t.Errorf("%v: %#x became %#x, want 0", err, was, read())
				}
				// The program's own sequence is still to be aborted.
				return p.WriteMemory(binary.LittleEndian.AppendUint64(nil, was), cs)
			})
			if errors.Is(err, ErrNoThread) {
				return nil // it did not stop in time
			}
			return err
		})
		return inside > 0
	})
	if out, status := g.rest(); status != 0 && status != 2 {
		t.Errorf("status %d, output %q", status, out)
	}
}
