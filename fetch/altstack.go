package fetch

import "encoding/binary"

// A signal handler with a stack of its own (sigaltstack)
//
// The kernel puts an rt_sigframe on that stack (arch/x86/include/asm/sigframe.h): the handler's
// return address, and then the ucontext with the registers that the signal interrupted, among
// them the stack pointer. That pointed to another piece of memory, which is copied after the
// first: by the tracer, which has the thread stopped, and in the same way by detours
// (probe/detour).

// Offsets in an rt_sigframe, in bytes (include/uapi/asm-generic/ucontext.h,
// arch/x86/include/uapi/asm/sigcontext.h).
const (
	SigFrameCode  = 0  // where the handler returns to
	SigFrameFlags = 8  // uc_flags, at most SigFlagsMax
	SigFrameLink  = 16 // uc_link, which the kernel leaves 0
	SigFrameStack = 24 // uc_stack: address, flags, size
	SigFrameSize  = 40
	SigFrameRSP   = 48 + 8*15      // the interrupted stack pointer
	SigFrameCS    = 48 + 8*18      // cs, gs, fs and ss, 16 bits each
	SigFrameEnd   = SigFrameCS + 8 // behind the registers that a walk needs
)

// Values in an rt_sigframe of a 64-bit process.
const (
	// SigSegmentsAt is where the segments are, modulo SigFrameAlign. The state of the
	// vector registers, above the frame's 440 bytes, begins at a multiple of 64
	// (fpu__alloc_mathframe), and the frame 8 bytes below a multiple of 16.
	SigSegmentsAt = 56
	SigFrameAlign = 64
	SigFlagsMax   = 7                         // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
	SigSegments   = 0x2b<<48 | 0x33           // __USER_DS and __USER_CS; gs and fs are not saved
	SigReturn     = 0x0f_00_00_00_0f_c0_c7_48 // mov $15,%rax and the first byte of syscall
)

// leaveAltStack searches a copy of the stack from base on for the frame of a signal that left
// another stack for this one, to which sp belongs. end is how much of the copy a walk needs up
// to there. from is the stack pointer that the signal left.
func (e *evaluator) leaveAltStack(b []byte, base, sp uint64) (end int, from uint64, ok bool) {
	le := binary.LittleEndian
	first := (sp+SigFrameCS-SigSegmentsAt+SigFrameAlign-1)&^(SigFrameAlign-1) + SigSegmentsAt - SigFrameCS
	for at := int(first - base); at >= 0 && at+SigFrameEnd <= len(b); at += SigFrameAlign {
		f := b[at:]
		flags, low, size, from := le.Uint64(f[SigFrameFlags:]), le.Uint64(f[SigFrameStack:]), le.Uint64(f[SigFrameSize:]), le.Uint64(f[SigFrameRSP:])
		if le.Uint64(f[SigFrameCS:]) != SigSegments || flags > SigFlagsMax || le.Uint64(f[SigFrameLink:]) != 0 ||
			sp-low >= size || from-low < size || from == 0 {
			continue
		}
		var code [8]byte
		if e.read(code[:], le.Uint64(f[SigFrameCode:])) && le.Uint64(code[:]) == SigReturn {
			return at + SigFrameEnd, from, true
		}
	}
	return 0, 0, false
}
