//go:build linux && amd64

package tracee

import (
	"syscall"

	"kprobe/symbols"
)

// trap handles a SIGTRAP: an int3, the end of a step, or a signal that somebody sent. Only the
// siginfo distinguishes them reliably: a SIGTRAP sent by kill may find the thread just after an
// int3 that it has not executed. Reading it costs a twentieth of a stop, which a TrapKnower
// saves.
func (t *Tracer) trap(th *Thread) error {
	if k, ok := t.handler.(TrapKnower); ok && !th.stepping {
		if r, err := th.Regs(); err == nil && k.KnowsTrap(th, symbols.Addr(r.Rip-1)) {
			return t.breakpoint(th)
		}
	}
	if err := th.readSiginfo(); err != nil {
		return err
	}
	hit, alone := th.wasWatched()
	if alone && !(th.stepping && th.endsStep()) {
		return t.watched(th)
	}
	if hit {
		t.tellWatched(th) // the stepped instruction made the access
		if th.gone || !th.stopped {
			return nil
		}
	}
	switch {
	case th.si.Code() == siKernel:
		return t.breakpoint(th)
	case th.stepping && th.endsStep():
		return t.obey(th, t.handler.Stepped(th))
	}
	return t.signal(th, syscall.SIGTRAP)
}

// endsStep reports whether the present stop, whose siginfo has been read, is the end of a
// single step. The step of a system call says TRAP_BRKPT (arch/x86/kernel/ptrace.c,
// user_single_step_report). So does any other step now and then in a virtual machine that loses
// the status register: the kernel takes it for an int1's (arch/x86/kernel/traps.c,
// exc_debug_user).
func (t *Thread) endsStep() bool {
	switch t.si.Code() {
	case trapTrace:
		return true
	case trapBrkpt:
		return t.behindSyscall() || t.stepping && (t.steppedCall() || t.untoldStep())
	}
	return false
}

// strayStep reports whether the present stop, whose siginfo has been read, can be the end of a
// step that an unknown earlier tracer asked for.
func (t *Thread) strayStep() bool {
	return t.si.Code() == trapTrace || t.si.Code() == trapBrkpt && !t.behindIcebp()
}

// untoldStep reports whether the trap of the present stop, which says TRAP_BRKPT, is that of
// the thread's step. If the program has queued the trap of an int1 to itself, that comes before
// the step.
func (t *Thread) untoldStep() bool {
	r, err := t.Regs()
	return err == nil && t.stepPlain && uint64(t.si.Addr()) == t.orig.Rip &&
		(r.Rip != t.stepFrom || !t.behindIcebp())
}

// steppedCall reports whether the stepped instruction is a system call after which the thread
// may be anywhere: rt_sigreturn.
func (t *Thread) steppedCall() bool {
	r, err := t.Regs()
	return err == nil && t.stepCall && r.Rip != t.stepFrom
}

// behindSyscall reports whether the instruction before the thread's next one is a system call.
func (t *Thread) behindSyscall() bool {
	return t.behind("\x0f\x05")
}

// behind reports whether code, at most two bytes, stands before the thread's next instruction.
func (t *Thread) behind(code string) bool {
	r, err := t.Regs()
	if err != nil {
		return false
	}
	var buf [2]byte
	b := buf[:len(code)]
	_, err = t.p.ReadMemory(b, symbols.Addr(r.Rip-uint64(len(code))))
	return err == nil && string(b) == code
}

func (t *Tracer) breakpoint(th *Thread) error {
	t.place.hit(th.tid, th.CPU)
	if th.trapIP == 0 {
		if _, err := th.Regs(); err == nil {
			th.trapIP = th.orig.Rip
		}
	}
	v := t.handler.Breakpoint(th)
	if th.gone || !th.stopped {
		return nil
	}
	if v == NotMine {
		if th.staleBreakpoint() {
			v = Resume
		} else if err := th.readSiginfo(); err != nil {
			return err
		} else {
			return t.deliverTrap(th)
		}
	}
	if err := th.p.checkForced(th); err != nil {
		return err
	}
	return t.obey(th, v)
}

// staleBreakpoint moves a thread back that hit an int3 which was removed before the hit was
// handled.
func (t *Thread) staleBreakpoint() bool {
	r, err := t.Regs()
	if err != nil {
		return false
	}
	var b [2]byte
	if _, err := t.p.ReadMemory(b[:], symbols.Addr(r.Rip-2)); err != nil {
		if _, err := t.p.ReadMemory(b[1:], symbols.Addr(r.Rip-1)); err != nil {
			return false
		}
	}
	const int3 = 0xcc
	if b[1] == int3 || b[0] == 0xcd && b[1] == 3 {
		return false
	}
	r.Rip--
	return true
}
