//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// How a thread comes back from a signal handler
//
// A handler that has repaired what made an instruction fault returns to it by
// rt_sigreturn. One that leaves by siglongjmp doesn't, and the program may come
// to the same instruction with the same registers by another way. The kernel
// tells the two apart for who watches the thread's system calls: at the entry of
// rt_sigreturn the stack pointer is at the frame's struct ucontext, which has
// the address that the thread goes on at.
//
// Each call costs two stops, so only the first few after the signal are looked
// at. A handler that makes more before it returns leaves the question open.

// comebackCalls is how many system calls are looked at.
const comebackCalls = 64

// ResumePoint is what is known of a thread's return from a signal handler.
type ResumePoint uint8

// What is known.
const (
	ComebackOpen ResumePoint = iota // it has not been looked at, or for too few calls
	ComebackNone                    // it has not returned to the address by rt_sigreturn
	ComebackSeen                    // it has
)

type resumePoint struct {
	at    symbols.Addr
	left  int // stops that are still to be looked at
	state ResumePoint
}

// ExpectComeback has the tracer look whether the thread, to which the signal
// that stopped it is about to be delivered, comes back to at when its handler
// returns. A call replaces the one before.
func (t *Thread) ExpectComeback(at symbols.Addr) {
	t.resumePoint = resumePoint{at: at, left: 2 * comebackCalls, state: ComebackNone}
}

// ResumePoint gives what is known by now of what ExpectComeback asked for, and ends
// the look.
func (t *Thread) ResumePoint() ResumePoint {
	c := t.resumePoint.state
	t.resumePoint = resumePoint{}
	return c
}

// seeComeback looks at the stop of a system call's entry or exit.
func (t *Thread) seeComeback() {
	c := &t.resumePoint
	if c.left == 0 {
		return
	}
	if c.left--; c.left == 0 {
		c.state = ComebackOpen
	}
	r, err := t.Regs()
	if err != nil || r.Orig_rax != unix.SYS_RT_SIGRETURN || r.Rax != negative(-int64(syscall.ENOSYS)) {
		return
	}
	var rip [8]byte
	if _, err := t.p.ReadMemory(rip[:], symbols.Addr(r.Rsp)+ucontextRIP); err != nil {
		return
	}
	if symbols.Addr(binary.LittleEndian.Uint64(rip[:])) == c.at {
		c.left, c.state = 0, ComebackSeen
	}
}

// atCall reports whether the present stop is that of a system call's entry or
// exit, which is nobody's event.
func (t *Thread) atCall() bool {
	return t.status>>16 == 0 && t.status.StopSignal() == syscall.SIGTRAP|0x80
}

// passCall looks at the stop of a system call and has the thread run on to the
// stop that it is asked for: a call can't be injected at this one.
func (t *Thread) passCall() {
	t.seeComeback()
	t.interrupt()
	_ = t.cont(0) // a thread that is gone will be reported
}

// ucontextRIP is where struct ucontext has the instruction pointer: behind
// uc_flags, uc_link and uc_stack, the seventeenth of struct sigcontext
// (arch/x86/include/uapi/asm/sigcontext.h).
const ucontextRIP = 40 + 16*8
