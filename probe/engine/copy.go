package engine

import (
	"golang.org/x/sys/unix"

	"kprobe/probe/area"
	"kprobe/probe/insn"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// rewind returns the registers at the site, before its instruction, for a thread that stopped in the
// copy. ok is false if the instruction has had its effect already.
func (s *Site) rewind(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	pt := s.moved.Where(int(symbols.Addr(regs.Rip) - s.slot))
	if pt.State == insn.After {
		return nil, false
	}
	return area.AtPoint(pt, regs, mem)
}

// leave is rewind; but if the instruction has had its effect, it returns the registers behind it.
func (s *Site) leave(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	return area.AtPoint(s.moved.Where(int(symbols.Addr(regs.Rip)-s.slot)), regs, mem)
}

// fault notes that the instruction of a site has faulted in its copy. delivered says that the
// program gets the signal, as if it had faulted at the site. Otherwise a fault handler has handled
// it, and the thread continues at the site.
func (th *thread) fault(st *Site, regs *unix.PtraceRegs, delivered bool) {
	th.faulted = st
	th.faultedRegs = General(regs)
	th.t.ResumePoint() // drop that of an earlier fault
	if delivered {
		th.t.ExpectComeback(st.Addr)
	}
}

// resumes reports whether a thread hits the site because the program has repaired its fault there,
// so that the same execution of the instruction goes on. It is false if the signal handler left by
// siglongjmp, even if the registers are the same.
func (th *thread) resumes(st *Site, regs *unix.PtraceRegs) bool {
	if th.faulted == nil {
		return false
	}
	back := th.t.ResumePoint()
	return th.faulted == st && back != tracee.ComebackNone && th.faultedRegs == General(regs)
}

// General lists the registers that a return from a signal handler restores, except the instruction
// pointer.
func General(r *unix.PtraceRegs) [17]uint64 {
	return [17]uint64{
		r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
		// Without RF (bit 16), which the processor sets and clears by itself.
		r.Eflags &^ (1 << 16),
	}
}
