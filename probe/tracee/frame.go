//go:build linux && amd64

package tracee

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Layout of struct rt_sigframe (arch/x86/include/asm/sigframe.h, uapi
// sigcontext.h and ucontext.h): the return address, a ucontext, a siginfo.
const (
	ucOffset       = 8
	ucStackFlags   = ucOffset + 24
	mcontextOffset = ucOffset + 40
	fpstatePointer = mcontextOffset + 184
	sigmaskOffset  = mcontextOffset + 256
	frameSize      = sigmaskOffset + 8 + 128
)

// Flags of ucontext.uc_flags.
const (
	ucFPXState        = 1
	ucSigcontextSS    = 2
	ucStrictRestoreSS = 4
)

// Layout of the XSAVE image (Intel SDM vol. 1, 13.4) and of the bytes that the
// kernel puts in it for signal frames (struct _fpx_sw_bytes).
const (
	swOffset   = 464
	xstateBV   = 512
	xstateMin  = 576  // legacy area and header
	xstateAVX  = 832  // with the upper halves of ymm
	xstateTile = 8192 // of the tiles of AMX, the last component
	fpMagic1   = 0x46505853
	fpMagic2   = 0x46505845
	frameAlign = 64
	maxXState  = 16384 // more than AMX needs
)

// buildFrame lays out regs, mask and the XSAVE image xs so that rt_sigreturn restores them when
// the stack pointer is 8 above the returned address. base is where the bytes will lie, a
// multiple of frameAlign. ret is the frame's return address.
//
// The XSAVE image lies above the frame, not below it as in the kernel's frames, so that pushes
// of a called function or a signal handler can't reach it. Only the part in use is copied. The
// kernel looks for the mark at the image's end after the size that the image states, or (6.14
// to 6.18) after the size that it would give the thread's image itself, which can't be known
// here. If it found no mark, it would set all but the SSE registers to zero. So the mark fills
// the rest, which no component in use reaches.
func buildFrame(base uint64, regs *unix.PtraceRegs, mask uint64, xs []byte, ret uint64) (image []byte, frame uint64) {
	size := len(xs) + 4
	xs = trimXState(xs)
	// At a function's entry the stack pointer is 8 off a multiple of 16, and
	// a called function finds it at the frame.
	const at = 8
	const fp = (at + frameSize + frameAlign - 1) &^ (frameAlign - 1)
	image = make([]byte, fp+size)
	le := binary.LittleEndian
	x := image[fp:]
	copy(x, xs)
	sw := x[swOffset:]
	clear(sw[:48])
	le.PutUint32(sw[0:], fpMagic1)
	le.PutUint32(sw[4:], uint32(len(xs)+4))
	le.PutUint64(sw[8:], le.Uint64(xs[xstateBV:]))
	le.PutUint32(sw[16:], uint32(len(xs)))
	for rest := x[len(xs):]; len(rest) >= 4; rest = rest[4:] {
		le.PutUint32(rest, fpMagic2)
	}

	f := image[at:]
	le.PutUint64(f[0:], ret)
	le.PutUint64(f[ucOffset:], ucFPXState|ucSigcontextSS|ucStrictRestoreSS)
	// An alternate stack with impossible flags is refused, so the thread's
	// stays as it is.
	le.PutUint32(f[ucStackFlags:], 0x7fff)
	r := restarted(regs)
	for i, v := range [...]uint64{
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
		r.Rdi, r.Rsi, r.Rbp, r.Rbx, r.Rdx, r.Rax, r.Rcx, r.Rsp, r.Rip, r.Eflags,
	} {
		le.PutUint64(f[mcontextOffset+8*i:], v)
	}
	seg := f[mcontextOffset+144:]
	le.PutUint16(seg[0:], uint16(r.Cs))
	le.PutUint16(seg[6:], uint16(r.Ss))
	le.PutUint64(f[fpstatePointer:], base+fp)
	le.PutUint64(f[sigmaskOffset:], mask)
	return image, base + at
}

// trimXState cuts an XSAVE image after the last component in use, as far as that is known
// without asking the processor for the layout.
func trimXState(xs []byte) []byte {
	switch bv := binary.LittleEndian.Uint64(xs[xstateBV:]); {
	case bv < 1<<2:
		return xs[:min(len(xs), xstateMin)]
	case bv < 1<<3:
		return xs[:min(len(xs), xstateAVX)]
	case bv < 1<<18 && len(xs) > xstateAVX+xstateTile:
		return xs[:len(xs)-xstateTile]
	}
	return xs
}

// restarted returns the registers that the kernel would give a thread on its way back to the
// program: an interrupted system call is to be made again (arch_do_signal_or_restart). A call
// with a restart block begins anew, because rt_sigreturn drops the block.
func restarted(regs *unix.PtraceRegs) unix.PtraceRegs {
	r := *regs
	if int64(r.Orig_rax) < 0 {
		return r
	}
	switch int64(r.Rax) {
	case erestartSys, erestartNoIntr, erestartNoHand, erestartRestartblock:
		r.Rax = r.Orig_rax
		r.Rip -= syscallLength
	}
	return r
}

// mustRestart reports whether the kernel has work to do for the thread's interrupted system
// call before it returns to the program.
func mustRestart(r *unix.PtraceRegs) bool {
	if int64(r.Orig_rax) < 0 {
		return false
	}
	switch int64(r.Rax) {
	case erestartSys, erestartNoIntr, erestartNoHand, erestartRestartblock:
		return true
	}
	return false
}
