package detour

import "kprobe/probe/asm"

// foreign passes a signal to the program's action. r8 = data.
func (n *fallback) foreign() {
	keep, handler, dfl, drop := n.NewLabel(), n.NewLabel(), n.NewLabel(), n.NewLabel()
	n.Bind(n.chain)
	n.Mov(asm.W32, asm.AX, asm.DI)
	n.OpImm(asm.And, asm.W32, asm.AX, fallbackSignals-1)
	n.ShiftImm(asm.Shl, asm.W32, asm.AX, actionShift)
	n.Lea(asm.R9, asm.Indexed(asm.R8, asm.AX, 1, fallbackActions)) // r9 = the action
	n.Load(asm.W64, asm.R11, asm.At(asm.R9, actionHandler))
	n.TestMemImm(asm.W32, asm.At(asm.R9, actionFlags), -saReset)
	n.JccShort(asm.E, keep)
	n.Op(asm.Xor, asm.W32, asm.R11, asm.R11)
	n.Xchg(asm.W64, asm.At(asm.R9, actionHandler), asm.R11)
	n.Bind(keep)
	n.OpImm(asm.Cmp, asm.W64, asm.R11, 1)
	n.Jcc(asm.A, handler)
	n.JccShort(asm.B, dfl)
	n.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.SI, siCode), 0)
	n.JccShort(asm.G, dfl) // a forced signal kills although it is ignored
	n.Bind(drop)
	n.Ret()
	n.Bind(dfl)
	n.byDefault()
	n.Bind(handler)
	n.toHandler()
}

// byDefault makes the thread take the signal, with its default action, as soon as the handler has returned.
// Until then the signal is blocked, so that a core dump shows the interrupted context instead of the
// handler. r8 = data.
func (n *fallback) byDefault() {
	done := n.NewLabel()
	n.Push(asm.DX)
	n.Push(asm.SI)
	n.Push(asm.DI)
	n.pushSignalBit()
	n.block()
	n.OpImm(asm.Add, asm.W64, asm.SP, 8)

	n.MovImm(asm.AX, sysRtSigaction)
	n.Load(asm.W32, asm.DI, asm.At(asm.SP, 0))
	n.Lea(asm.SI, asm.At(asm.R8, fallbackActions)) // that of no signal: zeros
	n.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	n.MovImm(asm.R10, 8)
	n.Syscall()

	n.MovImm(asm.AX, sysGettid)
	n.Syscall()
	n.Mov(asm.W32, asm.SI, asm.AX)
	n.MovImm(asm.AX, sysGetpid)
	n.Syscall()
	n.Mov(asm.W32, asm.DI, asm.AX)
	n.Load(asm.W32, asm.DX, asm.At(asm.SP, 0))
	n.Load(asm.W64, asm.R10, asm.At(asm.SP, 8))
	n.MovImm(asm.AX, sysRtTgsigqueueinfo)
	n.Syscall()
	n.Pop(asm.DI)
	n.Pop(asm.SI)
	n.Pop(asm.DX)
	n.Test(asm.W64, asm.AX, asm.AX)
	n.JccShort(asm.E, done)
	// A seccomp filter forbids it. A fault repeats by itself. For an int3 the thread must continue
	// at the int3.
	n.OpImm(asm.Cmp, asm.W32, asm.DI, sigTrap)
	n.JccShort(asm.NE, done)
	n.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.SI, siCode), siKernel)
	n.JccShort(asm.NE, done)
	n.DecMem(asm.W64, asm.At(asm.DX, ucRIP))
	n.Bind(done)
	n.Ret()
}

// toHandler enters the program's handler as the kernel would have done. r9 = the action, r11 = its handler.
//
// The handler's mask is set by rt_sigreturn, with a frame of the fallback handler's own that leads on here:
// seccomp rules that the program has set since may forbid rt_sigprocmask, but a program with signal handlers
// allows rt_sigreturn. Three cases have rt_sigprocmask: a shadow stack, which rt_sigreturn would want a token on;
// a signal that was sent, because a call that waits with another mask (sigsuspend) may have been interrupted,
// and then the frame's mask isn't the thread's; and an alternate stack without room for such a frame.
func (n *fallback) toHandler() {
	nodefer, enter, call, returns := n.NewLabel(), n.NewLabel(), n.NewLabel(), n.NewLabel()
	// Return by the program's own restorer, by which unwinders recognise the frame. With a shadow
	// stack, return by kprobe's, because the shadow stack has its address.
	n.Op(asm.Xor, asm.W32, asm.R10, asm.R10)
	n.Rdssp(asm.R10)
	n.Test(asm.W64, asm.R10, asm.R10)
	n.JccShort(asm.NE, returns)
	n.TestMemImm(asm.W32, asm.At(asm.R9, actionFlags), saRestorer)
	n.JccShort(asm.E, returns)
	n.Load(asm.W64, asm.CX, asm.At(asm.R9, actionRestorer))
	n.Store(asm.W64, asm.At(asm.SP, 0), asm.CX)
	n.Bind(returns)
	n.Load(asm.W64, asm.R8, asm.At(asm.R9, actionMask))
	n.TestMemImm(asm.W32, asm.At(asm.R9, actionFlags), saNodefer)
	n.JccShort(asm.NE, nodefer)
	n.Lea(asm.CX, asm.At(asm.DI, -1))
	n.Bts(asm.W64, asm.R8, asm.CX)
	n.Bind(nodefer)
	n.Test(asm.W64, asm.R8, asm.R8)
	n.Jcc(asm.E, enter)
	n.Test(asm.W64, asm.R10, asm.R10)
	n.JccShort(asm.NE, call)
	n.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.SI, siCode), 0)
	n.JccShort(asm.LE, call)
	n.returnWithMask(enter, call)
	n.Bind(call)
	for _, r := range []asm.Reg{asm.DX, asm.SI, asm.DI, asm.R11, asm.R8} {
		n.Push(r)
	}
	n.block()
	for _, r := range []asm.Reg{asm.R8, asm.R11, asm.DI, asm.SI, asm.DX} {
		n.Pop(r)
	}
	n.Bind(enter)
	n.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	n.JmpRegNoTrack(asm.R11)
}

// frameRoom is what an alternate stack must have left for returnWithMask, in bytes: the frame, and as much again
// for what may interrupt it.
const frameRoom = 2 * ucSize

// returnWithMask continues at next with the signals in r8 blocked too, and all registers as they are except rax,
// rcx, r8 and r10; or at call if the alternate stack has no room. It pushes a struct ucontext, last word
// first, and has rt_sigreturn restore it. The kernel doesn't read the struct siginfo behind it. Without
// floating-point state in the frame the kernel sets the state in which handlers begin (arch/x86/kernel/fpu/signal.c,
// fpu__restore_sig). It ignores an alternate stack with invalid flags, so that of the thread stays
// (kernel/signal.c, restore_altstack).
func (n *fallback) returnWithMask(next, call asm.Label) {
	fits := n.NewLabel()
	n.Mov(asm.W64, asm.AX, asm.SP)
	n.OpLoad(asm.Sub, asm.W64, asm.AX, asm.At(asm.DX, ucStack))
	n.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.DX, ucStack+16))
	n.JccShort(asm.AE, fits) // not on it
	n.OpImm(asm.Cmp, asm.W32, asm.AX, frameRoom)
	n.JccShort(asm.B, call)
	n.Bind(fits)
	n.Mov(asm.W64, asm.CX, asm.SP)
	n.OpLoad(asm.Or, asm.W64, asm.R8, asm.At(asm.DX, ucMask))
	n.Push(asm.R8)
	n.OpImm(asm.Sub, asm.W64, asm.SP, 8*8) // reserved
	n.PushImm(0)                           // fpstate
	n.OpImm(asm.Sub, asm.W64, asm.SP, 4*8) // err, trapno, oldmask, cr2
	n.PushImm(userCS)                      // cs, gs, fs, ss, 16 bits each
	n.StoreImm(asm.W8, asm.At(asm.SP, 6), userDS)
	n.Pushf()
	n.OpMemImm(asm.And, asm.W8, asm.At(asm.SP, 1), ^1) // TF, if a tracer steps the thread
	n.Lea(asm.AX, asm.Rel(next))
	n.Push(asm.AX)
	n.Push(asm.CX)
	for _, r := range []asm.Reg{
		asm.CX, asm.AX, asm.DX, asm.BX, asm.BP, asm.SI, asm.DI,
		asm.R15, asm.R14, asm.R13, asm.R12, asm.R11, asm.R10, asm.R9, asm.R8,
	} {
		n.Push(r)
	}
	n.Push(asm.AX)        // ss_size
	n.PushImm(badSSFlags) // ss_flags
	n.Push(asm.AX)        // ss_sp
	n.Push(asm.AX)        // uc_link
	n.PushImm(0)          // uc_flags
	n.MovImm(asm.AX, sysRtSigreturn)
	n.Syscall()
}

// pushSignalBit pushes the set of the one signal in edi.
func (n *fallback) pushSignalBit() {
	n.Lea(asm.CX, asm.At(asm.DI, -1))
	n.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	n.Bts(asm.W64, asm.AX, asm.CX)
	n.Push(asm.AX)
}

// block blocks the signals in the set at the top of the stack. Changes rax, rcx, rdx, rsi, rdi, r10, r11.
func (n *fallback) block() {
	n.MovImm(asm.AX, sysRtSigprocmask)
	n.Op(asm.Xor, asm.W32, asm.DI, asm.DI) // SIG_BLOCK
	n.Mov(asm.W64, asm.SI, asm.SP)
	n.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	n.MovImm(asm.R10, 8)
	n.Syscall()
}
