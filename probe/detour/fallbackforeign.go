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
// handler.
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
	n.Lea(asm.SI, asm.Rel(n.zeros))
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
func (n *fallback) toHandler() {
	nodefer, unmasked, enter := n.NewLabel(), n.NewLabel(), n.NewLabel()
	n.Load(asm.W64, asm.R8, asm.At(asm.R9, actionMask))
	n.TestMemImm(asm.W32, asm.At(asm.R9, actionFlags), saNodefer)
	n.JccShort(asm.NE, nodefer)
	n.Lea(asm.CX, asm.At(asm.DI, -1))
	n.Bts(asm.W64, asm.R8, asm.CX)
	n.Bind(nodefer)
	n.Test(asm.W64, asm.R8, asm.R8)
	n.JccShort(asm.E, unmasked)
	for _, r := range []asm.Reg{asm.DX, asm.SI, asm.DI, asm.R11, asm.R8} {
		n.Push(r)
	}
	n.block()
	for _, r := range []asm.Reg{asm.R8, asm.R11, asm.DI, asm.SI, asm.DX} {
		n.Pop(r)
	}
	n.Bind(unmasked)
	// Return by the program's own restorer, by which unwinders recognise the frame. With a shadow
	// stack, return by kprobe's, because the shadow stack has its address.
	n.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	n.Rdssp(asm.AX)
	n.Test(asm.W64, asm.AX, asm.AX)
	n.JccShort(asm.NE, enter)
	n.TestMemImm(asm.W32, asm.At(asm.R9, actionFlags), saRestorer)
	n.JccShort(asm.E, enter)
	n.Load(asm.W64, asm.CX, asm.At(asm.R9, actionRestorer))
	n.Store(asm.W64, asm.At(asm.SP, 0), asm.CX)
	n.Bind(enter)
	n.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	n.JmpRegNoTrack(asm.R11)
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
