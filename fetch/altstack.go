package fetch

import (
	"bytes"
	"encoding/binary"
)

// A signal handler with a stack of its own (sigaltstack)
//
// The kernel puts an rt_sigframe on that stack (arch/x86/include/asm/sigframe.h):
// the handler's return address, and then the ucontext with the registers that the
// signal interrupted, the stack pointer among them. What that pointed to is
// another piece of memory. The tracer, which has the thread stopped, copies both;
// a detour copies the first alone, and a walk ends between them as truncated.

// Offsets in an rt_sigframe, in bytes (include/uapi/asm-generic/ucontext.h,
// arch/x86/include/uapi/asm/sigcontext.h).
const (
	frameFlags = 8  // uc_flags
	frameLink  = 16 // uc_link, which the kernel leaves 0
	frameStack = 24 // uc_stack: address, flags, size
	frameSize  = 40
	frameRSP   = 48 + 8*15
	frameCS    = 48 + 8*18
	frameEnd   = 48 + 8*20 // behind the registers that a walk needs
)

// userCS is the code segment of 64-bit processes (__USER_CS).
const userCS = 0x33

// sigreturn is mov $15,%rax; syscall, to which every handler returns.
var sigreturn = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}

// leaveAltStack finds in a copy of the stack from base on the frame of a signal
// that left another stack for this one, on which sp is. end is how much of the
// copy a walk needs up to there, and from is the stack pointer it left.
func (e *evaluator) leaveAltStack(b []byte, base, sp uint64) (end int, from uint64, ok bool) {
	le := binary.LittleEndian
	for at := int(sp - base); at >= 0 && at+frameEnd <= len(b); at += 8 {
		f := b[at:]
		flags, low, size, from := le.Uint64(f[frameFlags:]), le.Uint64(f[frameStack:]), le.Uint64(f[frameSize:]), le.Uint64(f[frameRSP:])
		if flags > 7 || le.Uint64(f[frameLink:]) != 0 || uint16(le.Uint64(f[frameCS:])) != userCS ||
			sp-low >= size || from-low < size || from == 0 {
			continue
		}
		var code [9]byte
		if e.read(code[:], le.Uint64(f)) && bytes.Equal(code[:], sigreturn) {
			return at + frameEnd, from, true
		}
	}
	return 0, 0, false
}
