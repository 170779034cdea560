//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestNoFrameIsLeft: the context that an injected call has saved isn't taken for the frame of a signal
// later, by a thread whose stack lies below it.
func TestNoFrameIsLeft(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_busy.c", "-O1"), "3")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	running(t, tr, &recorder{t: t})
	frames := func(from symbols.Addr) (n int) {
		interrupted(p, from, func(*signalFrame) bool { n++; return false })
		return n
	}
	do(t, tr, func() error {
		fn := mapScratch(t, p)
		if sum, err := p.Call(context.Background(), nil, fn, 2, 3); err != nil || sum != 5 {
			t.Errorf("a call gives %d, %v", sum, err)
		}
		if _, err := p.Syscall(context.Background(), nil, unix.SYS_CLOSE, 12345); !errors.Is(err, unix.EBADF) {
			t.Errorf("a system call gives %v", err)
		}
		if n := frames(p.frame); n != 0 {
			t.Errorf("%d frames are left", n)
		}
		return nil
	})
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, output %q", status, out)
	}
}

// TestInterruptedRegs: a frame has the registers of what the signal has interrupted.
func TestInterruptedRegs(t *testing.T) {
	const base = symbols.Addr(0x100000)
	m := &stackMemory{base, make([]byte, 0x2000)}
	m.put(base+0x800, 0x7000, base+0xe00, 0, 0)
	copy(m.b[0x800+mcontextOffset+14*8:], leBytes(0x1234)) // rcx
	var got []unix.PtraceRegs
	interrupted(m, base, func(f *signalFrame) bool { got = append(got, f.regs); return false })
	want := unix.PtraceRegs{Rcx: 0x1234, Rip: 0x7000, Rsp: uint64(base) + 0xe00, Eflags: 0x10246}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want one %+v", got, want)
	}
}
