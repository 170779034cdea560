//go:build linux && amd64

package tracee

import (
	"context"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// abandon begins an injected call in a thread and detaches it as soon as it is
// to run, as the tracer's death does: the thread returns to its own context
// through the saved frame, by itself. features are the components of the XSAVE
// image that the frame is to hold.
func abandon(th *Thread, features byte) error {
	in, err := th.prepareInjection(codeReturn, false)
	if err != nil {
		return err
	}
	// Some processors name registers as in use that nobody uses, and the
	// saved image is then never a short one.
	in.xstate[xstateBV] &= features
	begun, _ := th.begun(&in.saved)
	image, _ := buildFrame(in.room.base, &begun, in.mask, in.xstate, in.room.code+codeReturn)
	if err := th.p.WriteMemory(image, symbols.Addr(in.room.base)); err != nil {
		return err
	}
	r := in.start
	r.Rip = in.room.code + codeSyscall
	r.Rsp = in.frame + 8
	r.Rax = unix.SYS_GETPPID
	if e := setRegs(th.tid, &r); e != 0 {
		return e
	}
	th.haveRegs = false
	return nil
}

// A thread whose tracer is killed in an injected call keeps its vector
// registers, of whatever width.
func TestAbandonedCallKeepsVectors(t *testing.T) {
	exe := fixture.Build(t, "tracee_vectors.c", "-O1")
	for width, features := range map[string]byte{"sse": 3, "avx": 7, "avx512": 0xe7} {
		for _, scratch := range []bool{false, true} {
			t.Run(width+" scratch="+strconv.FormatBool(scratch), func(t *testing.T) {
				g := spawn(t, exe, width)
				tid, err := strconv.Atoi(g.line())
				if err != nil {
					t.Fatal(err)
				}
				if tid == 0 {
					if _, status := g.rest(); status != 77 {
						t.Errorf("status %d", status)
					}
					return // the processor has no registers of this width to lose
				}
				for range 20 {
					tr := newTracer(t)
					p := attach(t, tr, g.pid)
					stop := running(t, tr, &recorder{t: t})
					if scratch {
						do(t, tr, func() error { mapScratch(t, p); return nil })
					}
					do(t, tr, func() error {
						return p.Detach(context.Background(), func([]*Thread) error { return abandon(p.Thread(tid), features) })
					})
					if err := stop(); err != nil {
						t.Fatal(err)
					}
				}
				if out, status := g.rest(); status != 0 || out != "" {
					t.Errorf("status %d, %q", status, out)
				}
			})
		}
	}
}
