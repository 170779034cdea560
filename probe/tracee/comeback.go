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
// A handler that has repaired the cause of a fault returns to the instruction by rt_sigreturn.
// A handler that leaves by siglongjmp doesn't, and the program may come to the same instruction
// with the same registers in another way. The kernel lets a tracer tell the two apart that
// watches the thread's system calls: at the entry of rt_sigreturn the stack pointer is at the
// frame's struct ucontext, which contains the address at which the thread continues.
//
// Each call costs two stops, so only the first few after the signal are watched. If the handler
// makes more calls before it returns, the question stays open.

// comebackCalls is how many system calls are watched.
const comebackCalls = 64

// ResumePoint is what is known about a thread's return from a signal handler.
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

// ExpectComeback makes the tracer watch whether the thread comes back to an address when a
// signal handler returns. The signal is the one that stopped the thread and is about to be
// delivered. A new call replaces the previous one.
func (t *Thread) ExpectComeback(at symbols.Addr) {
	t.resumePoint = resumePoint{at: at, left: 2 * comebackCalls, state: ComebackNone}
}

// ResumePoint returns what is known by now about the return that ExpectComeback asked for, and
// ends the watch.
func (t *Thread) ResumePoint() ResumePoint {
	c := t.resumePoint.state
	t.resumePoint = resumePoint{}
	return c
}

// seeComeback examines the stop of a system call's entry or exit.
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

// atCall reports whether the present stop is that of a system call's entry or exit, which is
// nobody's event.
func (t *Thread) atCall() bool {
	return t.status>>16 == 0 && t.status.StopSignal() == syscall.SIGTRAP|0x80
}

// passCall takes the thread from the stop of a system call to the stop that it was asked for. A
// call can't be injected at the former.
func (t *Thread) passCall() {
	t.seeComeback()
	t.interrupt()
	_ = t.cont(0) // a thread that is gone will be reported
}

// ucontextRIP is the offset of the instruction pointer in struct ucontext: after uc_flags,
// uc_link and uc_stack, the seventeenth word of struct sigcontext
// (arch/x86/include/uapi/asm/sigcontext.h).
const ucontextRIP = 40 + 16*8
