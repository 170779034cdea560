//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// Steps of threads that block SIGTRAP
//
// The kernel forces the trap of a step, like that of an int3 (send_sigtrap in
// arch/x86/kernel/traps.c). If the thread blocks SIGTRAP, as in a handler that blocks all
// signals, the process loses its action for it. So the thread has SIGTRAP unblocked while it is
// stepped. The states:
//
//	closed  the mask is the program's
//	open    a step is about to be made, or was made. If the program's mask has SIGTRAP,
//	        stepMask is that mask, and the thread's mask lacks SIGTRAP
//	stale   a signal was delivered: the mask is looked at again before the next step
//
// The trap after a system call that sets the mask is forced, too, and by then the mask is the
// new one. So the tracer does rt_sigprocmask for the thread, and lets rt_sigreturn find a frame
// whose mask lacks SIGTRAP. If the thread is stopped before it executes rt_sigreturn, and isn't
// stepped, the frame gets its mask back.
//
// If the tracer is killed in between, the thread keeps a mask without SIGTRAP.

// openStep makes a step of the stopped thread safe for the process's action.
func (t *Thread) openStep() {
	if t.stepOpen {
		return
	}
	m, err := t.SigMask()
	if err != nil {
		return // gone
	}
	const trap = 1 << (syscall.SIGTRAP - 1)
	t.stepOpen = true
	switch {
	case m&trap != 0:
		if t.SetSigMask(m&^trap) == nil {
			t.stepMask = m
		}
	case m != t.stepMask&^trap:
		t.stepMask = 0 // the program has set it since
	}
}

// closeStep restores the stopped thread's mask, if the thread has set no other.
func (t *Thread) closeStep() {
	t.stepOpen = false
	if t.frameAt != 0 {
		if t.frameMask != 0 {
			_ = t.p.WriteMemory(binary.LittleEndian.AppendUint64(nil, t.frameMask), t.frameAt) // fails only if the thread is gone
		}
		t.frameAt = 0
	}
	if t.stepMask == 0 {
		return
	}
	if m, err := t.SigMask(); err == nil && m == t.stepMask&^sigBit(syscall.SIGTRAP) {
		_ = t.SetSigMask(t.stepMask) // fails only if the thread is gone
	}
	t.stepMask = 0
}

// stepMasks handles a system call that sets the mask and is about to be stepped. It reports
// whether the call is done, with the thread after it.
func (t *Thread) stepMasks(r *unix.PtraceRegs) bool {
	switch int64(r.Rax) {
	case unix.SYS_RT_SIGPROCMASK:
		return t.stepSigprocmask(r)
	case unix.SYS_RT_SIGRETURN:
		t.stepSigreturn(symbols.Addr(r.Rsp))
	}
	return false
}

// sigsetSize is the size of the kernel's sigset_t.
const sigsetSize = 8

// stepSigprocmask does rt_sigprocmask(2) for the thread. A call that the kernel would refuse is
// left to the kernel.
func (t *Thread) stepSigprocmask(r *unix.PtraceRegs) bool {
	m, err := t.SigMask()
	if err != nil || r.R10 != sigsetSize {
		return false
	}
	const trap = 1 << (syscall.SIGTRAP - 1)
	is := m | t.stepMask&trap
	now := is
	if at := symbols.Addr(r.Rsi); at != 0 {
		var b [sigsetSize]byte
		if n, err := t.p.ReadMemory(b[:], at); err != nil || n != len(b) {
			return false
		}
		set := binary.LittleEndian.Uint64(b[:])
		switch int32(r.Rdi) {
		case 0: // SIG_BLOCK
			now |= set
		case 1: // SIG_UNBLOCK
			now &^= set
		case 2: // SIG_SETMASK
			now = set
		default:
			return false
		}
		now &^= sigBit(syscall.SIGKILL) | sigBit(syscall.SIGSTOP)
	}
	if at := symbols.Addr(r.Rdx); at != 0 && t.p.WriteMemory(binary.LittleEndian.AppendUint64(nil, is), at) != nil {
		return false
	}
	if now != is && t.SetSigMask(now&^trap) != nil {
		return false
	}
	if t.stepMask = 0; now&trap != 0 {
		t.stepMask = now
	}
	to := *r
	to.Rip += syscallSize
	to.Rax, to.Rcx, to.R11 = 0, to.Rip, r.Eflags
	return t.SetRegs(&to) == nil
}

// syscallSize is the length of syscall, 0f 05.
const syscallSize = 2

// frameMask is the offset of uc_sigmask in struct ucontext, at which the stack pointer
// is when a handler returns (arch/x86/include/uapi/asm/sigcontext.h, include/uapi/
// asm-generic/ucontext.h).
const frameMask = 296

// frameFlags is that of the flags in uc_mcontext (REG_EFL of sys/ucontext.h).
const frameFlags = 40 + 17*8

// stepSigreturn removes SIGTRAP from the mask of the frame that rt_sigreturn(2) is about to
// restore.
func (t *Thread) stepSigreturn(frame symbols.Addr) {
	at := frame + frameMask
	if t.frameAt == at {
		return // it was stopped before it executed that
	}
	var b [sigsetSize]byte
	if n, err := t.p.ReadMemory(b[:], at); err != nil || n != len(b) {
		return
	}
	m := binary.LittleEndian.Uint64(b[:])
	t.frameAt, t.frameMask, t.frameSteps = at, 0, false
	var flags [2]byte
	if n, err := t.p.ReadMemory(flags[:], frame+frameFlags); err == nil && n == len(flags) {
		t.frameSteps = binary.LittleEndian.Uint16(flags[:])&trapFlag != 0
	}
	if trap := sigBit(syscall.SIGTRAP); m&trap != 0 && t.p.WriteMemory(binary.LittleEndian.AppendUint64(nil, m&^trap), at) == nil {
		t.frameMask = m
	}
}

// steppedSigreturn restores, at the stop that follows, the program's mask and trap flag from
// the frame. The kernel takes that flag for the step's (set_flags and user_disable_single_step
// in arch/x86/kernel).
func (t *Thread) steppedSigreturn() {
	if t.frameAt == 0 {
		return
	}
	if r, err := t.Regs(); err == nil && r.Rip != t.stepFrom {
		t.stepMask, t.frameAt = t.frameMask, 0
		if t.frameSteps {
			r.Eflags |= trapFlag
		}
	}
}

// isSyscall reports whether code begins with syscall.
func isSyscall(code []byte) bool { return len(code) > 1 && code[0] == 0x0f && code[1] == 0x05 }
