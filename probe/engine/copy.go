package engine

import (
	"golang.org/x/sys/unix"

	"kprobe/probe/area"
	"kprobe/probe/insn"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// rewind gives the registers that the thread would have at the site before
// its instruction, for a thread that stopped in the copy before that
// instruction had its effect. ok is false where it already had.
func (s *Site) rewind(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	pt := s.moved.Where(int(symbols.Addr(regs.Rip) - s.slot))
	if pt.State == insn.After {
		return nil, false
	}
	return area.AtPoint(pt, regs, mem)
}

// leave is rewind, or where the instruction had its effect the registers that
// the thread has behind it.
func (s *Site) leave(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	return area.AtPoint(s.moved.Where(int(symbols.Addr(regs.Rip)-s.slot)), regs, mem)
}

// fault notes that the program is shown a fault in a copy as one at the site:
// delivered, by its signal; else a handler has seen to it, and the thread goes on
// at the site.
func (th *thread) fault(st *Site, regs *unix.PtraceRegs, delivered bool) {
	th.faulted = st
	th.faultedRegs = General(regs)
	th.t.ResumePoint() // of a fault before
	if delivered {
		th.t.ExpectComeback(st.Addr)
	}
}

// resumes reports whether a thread that hit the site is the one whose fault
// there the program repaired: the same execution of the instruction goes on. A
// handler that leaves by siglongjmp doesn't come back, whatever the registers.
func (th *thread) resumes(st *Site, regs *unix.PtraceRegs) bool {
	if th.faulted == nil {
		return false
	}
	back := th.t.ResumePoint()
	return th.faulted == st && back != tracee.ComebackNone && th.faultedRegs == General(regs)
}

// General lists the registers that a return from a signal handler restores,
// but the instruction pointer.
func General(r *unix.PtraceRegs) [17]uint64 {
	return [17]uint64{
		r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
		// RF is set and cleared by the processor as it likes.
		r.Eflags &^ (1 << 16),
	}
}
