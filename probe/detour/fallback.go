package detour

import (
	"kprobe/probe/asm"
)

// FallbackParams say what a fallback handler refers to. All addresses are the target's.
type FallbackParams struct {
	// Data is the address of the fallback handler's data (FallbackDataSize bytes, readable
	// and writable, 8-aligned). See FallbackData.
	Data uint64
}

// PromiseCode is the si_code with which a tracer says where a thread continues that has hit an
// int3. No process can send another a positive code (sigqueue(3)).
const PromiseCode = 0x6b70

// FallbackLabels are the addresses of a fallback handler's parts.
type FallbackLabels struct {
	Handler  uint64 // sa_sigaction
	Restorer uint64 // sa_restorer
	End      uint64 // the first address behind the fallback handler
	// Looks are the ranges in which a thread reads, or is about to read, memory that the
	// data lead to: from each first address up to the second. The handler has had no effect
	// yet, and its arguments are those of Handler: a thread that is sent back there begins
	// anew.
	Looks [3][2]uint64
}

// Offsets in the frame that the kernel hands to a handler (struct siginfo and
// struct ucontext of Linux x86-64).
const (
	siCode = 8
	siAddr = 16
	ucRDI  = 40 + 8*8
	ucRSI  = 40 + 9*8
	ucRBX  = 40 + 11*8
	ucRAX  = 40 + 13*8
	ucRSP  = 40 + 15*8
	ucRIP  = 40 + 16*8

	ucStack = 16       // ss_sp; ss_size is 16 bytes on
	ucMask  = 40 + 256 // behind struct sigcontext
	ucSize  = ucMask + 8
)

// System calls and constants of Linux x86-64.
const (
	sysRtSigaction      = 13
	sysRtSigprocmask    = 14
	sysRtSigreturn      = 15
	sysGetpid           = 39
	sysGettid           = 186
	sysRtTgsigqueueinfo = 297

	sigTrap    = 5
	siKernel   = 0x80 // si_code of int3
	trapBrkpt  = 1    // of a single step over a system call
	trapTrace  = 2    // and over anything else
	trapHwbkpt = 4    // of a debug register
	saSiginfo  = 0x4
	saRestorer = 0x04000000
	saOnstack  = 0x08000000
	saRestart  = 0x10000000
	saNodefer  = 0x40000000
	saReset    = 0x80000000

	userCS     = 0x33 // the kernel's selectors for 64-bit code and its data
	userDS     = 0x2b
	badSSFlags = 3 // SS_ONSTACK and SS_DISABLE
)

// Fallback makes the fallback handler for the address base: a position-dependent block of code
// of less than a page, with a signal handler and its restorer.
//
// While a tracer is attached, it takes the stops of breakpoints and faulting loads before they
// become signals, and the fallback handler sees nothing. When the tracer has died, the kernel
// delivers them to the handler, which does what the tracer did, except recording:
//
//   - SIGTRAP by int3: the address of the int3 is looked up in the table. If it is found, the
//     thread continues at the copy. In a range of return trampolines it continues after the
//     int3, where the trampoline jumps to the caller.
//   - SIGTRAP with PromiseCode: the thread continues at si_addr.
//   - SIGTRAP by a debug register, if the tracer has noted that memory is watched: the thread
//     continues.
//   - SIGTRAP by a single step, if the tracer has noted that it steps threads: the thread
//     continues.
//   - SIGSEGV, SIGBUS, SIGILL: the faulting instruction is looked up. If it is found (a load of
//     a detour, a guard byte of a jump), the thread continues at the address in the table.
//   - SIGSEGV, SIGBUS at a push of a detour's prologue (PushFault): the thread continues at the
//     displaced instructions, with the registers of the site, or after the call whose return
//     trampoline it is.
//   - SIGSEGV, SIGBUS, SIGFPE at a copy of one of the program's instructions (CopyFault): the
//     frame becomes what it would be at the original, and so does si_addr if it is the
//     instruction's. Then the signal is the program's.
//   - Everything else is the program's own and goes to the action from before, as the kernel
//     would have delivered it. Its handler is entered with the same arguments, signal mask
//     (sa_mask, SA_NODEFER) and restorer; SA_RESETHAND resets. The default action is reached by
//     restoring SIG_DFL and queueing the same siginfo to the thread, so that a core dump shows
//     the program's own address. An ignored signal is dropped, but a forced one kills, as
//     without the fallback handler.
//
// Two things differ: the handler runs on the alternate stack if the thread has one, even if the
// program's action lacks SA_ONSTACK; and the program sees the fallback handler if it asks for
// its action.
//
// The handler uses at most 64 bytes of stack, no vector register, no lock, and no memory except
// the data. It may be interrupted by and entered from anything, on any thread. Only for signals
// that aren't kprobe's it makes a system call, and may use 304 bytes of stack (returnWithMask).
func Fallback(base uint64, p FallbackParams) ([]byte, FallbackLabels) {
	n := fallback{Code: asm.New(base)}
	n.chain, n.copied = n.NewLabel(), n.NewLabel()
	var l FallbackLabels
	l.Handler = n.Here()
	n.lookup(p.Data)
	l.Looks = n.looks
	n.foreign()
	n.asOriginal()
	n.Align(16, 0xcc)
	l.Restorer = n.Here()
	// libgcc and gdb know a signal frame by these very bytes:
	// mov rax, 15; syscall (rt_sigreturn)
	n.Raw(0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05)
	l.End = n.Here()
	b, err := n.Bytes()
	if err != nil {
		panic("detour: the fallback handler doesn't assemble: " + err.Error()) // no input can cause it: a test emits it
	}
	return b, l
}

// fallback emits the parts of the fallback handler. In all of them rdi, rsi and rdx are the handler's
// arguments, and the callee-saved registers have the values of the interrupted code.
type fallback struct {
	*asm.Code
	chain  asm.Label // the signal is the program's
	copied asm.Label // the signal is the program's, but was raised in a copy
	looks  [3][2]uint64
}

// lookup answers kprobe's signals. For any other signal it falls into chain, with r8 = data.
func (n *fallback) lookup(data uint64) {
	look, probe, next, hit := n.NewLabel(), n.NewLabel(), n.NewLabel(), n.NewLabel()
	trap, step := n.NewLabel(), n.NewLabel()
	ranges, trampoline := n.NewLabel(), n.NewLabel()
	resume, retired, fault := n.NewLabel(), n.NewLabel(), n.NewLabel()

	n.Endbr()
	n.MovAbs(asm.R8, data)
	n.Load(asm.W64, asm.R10, asm.At(asm.DX, ucRIP))
	n.Load(asm.W32, asm.AX, asm.At(asm.SI, siCode))
	n.Test(asm.W32, asm.AX, asm.AX)
	n.Jcc(asm.LE, n.chain) // sent by a process
	n.OpImm(asm.Cmp, asm.W32, asm.DI, sigTrap)
	n.JccShort(asm.NE, fault)
	n.OpImm(asm.Cmp, asm.W32, asm.AX, siKernel)
	n.JccShort(asm.E, trap)
	// A promise of a tracer that was killed.
	n.Load(asm.W64, asm.CX, asm.At(asm.SI, siAddr))
	n.OpImm(asm.Cmp, asm.W32, asm.AX, PromiseCode)
	n.Jcc(asm.E, resume)
	// The trap of a debug register that a killed tracer has set. In virtual machines its si_code may
	// be trapBrkpt.
	n.OpImm(asm.Cmp, asm.W32, asm.AX, trapTrace)
	n.JccShort(asm.E, step)
	n.OpImm(asm.Cmp, asm.W32, asm.AX, trapHwbkpt)
	n.JccShort(asm.A, step)
	n.looks[0][0] = n.Here()
	n.Load(asm.W64, asm.R9, asm.At(asm.R8, fallbackWatched))
	n.Test(asm.W64, asm.R9, asm.R9)
	n.JccShort(asm.E, step)
	n.OpMemImm(asm.Cmp, asm.W64, asm.At(asm.R9, 0), 0)
	n.looks[0][1] = n.Here()
	n.JccShort(asm.E, step)
	n.Lock()
	n.IncMem(asm.W64, asm.At(asm.R8, fallbackTaken))
	n.Ret()
	// The trap of a step by a tracer that was killed meanwhile.
	n.Bind(step)
	n.OpImm(asm.Cmp, asm.W32, asm.AX, trapTrace)
	n.Jcc(asm.A, n.chain) // trapBrkpt is below
	n.looks[1][0] = n.Here()
	n.Load(asm.W64, asm.R9, asm.At(asm.R8, fallbackSteps))
	n.Test(asm.W64, asm.R9, asm.R9)
	n.Jcc(asm.E, n.chain)
	n.OpMemImm(asm.Cmp, asm.W64, asm.At(asm.R9, 0), 0)
	n.Jcc(asm.LE, n.chain)
	n.Lock()
	n.DecMem(asm.W64, asm.At(asm.R9, 0))
	n.looks[1][1] = n.Here()
	n.Ret()
	n.Bind(trap)
	n.OpImm(asm.Sub, asm.W64, asm.R10, 1)
	n.JmpShort(look)
	// A fault of a probed instruction itself is the program's. faultKey distinguishes it from the
	// instruction's int3.
	n.Bind(fault)
	n.MovAbs(asm.CX, faultKey)
	n.Op(asm.Or, asm.W64, asm.R10, asm.CX)

	// r9 = the table's half in use, r10 = key, rax = slot, r11 = slots left to search
	n.Bind(look)
	n.looks[2][0] = n.Here()
	n.Load(asm.W64, asm.R9, asm.At(asm.R8, fallbackTable))
	n.Test(asm.W64, asm.R9, asm.R9)
	n.Jcc(asm.E, ranges)
	n.Load(asm.W64, asm.R9, asm.At(asm.R9, tableForce))
	n.MovAbs(asm.AX, hashFactor)
	n.Imul(asm.W64, asm.AX, asm.R10)
	n.Load(asm.W32, asm.CX, asm.At(asm.R9, tableShift))
	n.ShiftCL(asm.Shr, asm.W64, asm.AX)
	n.Load(asm.W64, asm.R11, asm.At(asm.R9, tableMask))
	n.OpLoad(asm.And, asm.W64, asm.AX, asm.At(asm.R9, tableMask))
	n.Bind(probe)
	n.Mov(asm.W64, asm.CX, asm.AX)
	n.ShiftImm(asm.Shl, asm.W64, asm.CX, slotShift)
	key := asm.Indexed(asm.R9, asm.CX, 1, tableSlots)
	n.OpLoad(asm.Cmp, asm.W64, asm.R10, key)
	n.JccShort(asm.E, hit)
	n.OpMemImm(asm.Cmp, asm.W64, key, 0)
	n.JccShort(asm.E, ranges)
	n.Bind(next)
	n.OpImm(asm.Add, asm.W64, asm.AX, 1)
	n.OpLoad(asm.And, asm.W64, asm.AX, asm.At(asm.R9, tableMask))
	n.OpImm(asm.Sub, asm.W64, asm.R11, 1)
	n.Jcc(asm.AE, probe)
	n.JmpShort(ranges)

	n.Bind(hit)
	n.Load(asm.W64, asm.CX, key.Plus(8))
	n.looks[2][1] = n.Here()
	n.Test(asm.W64, asm.CX, asm.CX)
	n.JccShort(asm.E, ranges)
	n.Op(asm.Cmp, asm.W64, asm.CX, asm.R10)
	n.JccShort(asm.E, retired)
	n.Test(asm.W64, asm.CX, asm.CX)
	n.Jcc(asm.S, n.copied)
	n.Lock()
	n.IncMem(asm.W64, asm.At(asm.R8, fallbackTaken))
	n.Bind(resume)
	n.Store(asm.W64, asm.At(asm.DX, ucRIP), asm.CX)
	n.Ret()
	// The probe was removed after this thread's trap, and the instruction is back in the text. If
	// there is an int3 now, it is the program's.
	n.Bind(retired)
	n.OpImm(asm.Cmp, asm.W32, asm.DI, sigTrap)
	n.JccShort(asm.NE, n.chain)
	n.OpMemImm(asm.Cmp, asm.W8, asm.At(asm.R10, 0), -0x34) // 0xcc
	n.JccShort(asm.NE, resume)
	n.JmpShort(n.chain)

	n.Bind(ranges)
	n.OpImm(asm.Cmp, asm.W32, asm.DI, sigTrap)
	n.JccShort(asm.NE, n.chain)
	for i := range fallbackRanges {
		n.Mov(asm.W64, asm.AX, asm.R10)
		n.OpLoad(asm.Sub, asm.W64, asm.AX, asm.At(asm.R8, int32(fallbackLandings+16*i)))
		n.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.R8, int32(fallbackLandings+16*i+8)))
		n.JccShort(asm.B, trampoline)
	}
	n.JmpShort(n.chain)
	n.Bind(trampoline)
	n.Lock()
	n.IncMem(asm.W64, asm.At(asm.R8, fallbackTaken))
	n.Ret()
}

// asOriginal changes the signal's frame from a fault in a copy to a fault of the original instruction, and
// continues at chain. rcx = CopyFault's value.
func (n *fallback) asOriginal() {
	n.Bind(n.copied)
	elsewhere, near, si, di := n.NewLabel(), n.NewLabel(), n.NewLabel(), n.NewLabel()
	rolled := n.NewLabel()
	n.Mov(asm.W64, asm.AX, asm.CX)
	n.ShiftImm(asm.Shr, asm.W64, asm.AX, copyKind)
	n.TestImm(asm.W32, asm.AX, copyRolled)
	n.Jcc(asm.NE, rolled)
	n.ShiftImm(asm.Shl, asm.W64, asm.CX, 64-copyKind)
	n.ShiftImm(asm.Shr, asm.W64, asm.CX, 64-copyKind)
	n.Load(asm.W64, asm.R9, asm.At(asm.DX, ucRIP))
	n.OpLoad(asm.Cmp, asm.W64, asm.R9, asm.At(asm.SI, siAddr))
	n.JccShort(asm.NE, elsewhere)
	n.Store(asm.W64, asm.At(asm.SI, siAddr), asm.CX)
	n.Bind(elsewhere)
	n.Store(asm.W64, asm.At(asm.DX, ucRIP), asm.CX)

	n.Mov(asm.W32, asm.R9, asm.AX)
	n.OpImm(asm.And, asm.W32, asm.R9, copyPushed)
	n.ShiftImm(asm.Shl, asm.W32, asm.R9, 1)
	n.TestImm(asm.W32, asm.AX, copyFar)
	n.JccShort(asm.E, near)
	n.OpImm(asm.Add, asm.W32, asm.R9, copySkip)
	n.Bind(near)
	n.OpLoad(asm.Add, asm.W64, asm.R9, asm.At(asm.DX, ucRSP))
	n.Store(asm.W64, asm.At(asm.DX, ucRSP), asm.R9)
	n.OpImm(asm.And, asm.W32, asm.AX, copyScratch)
	n.Jcc(asm.E, n.chain)
	n.Load(asm.W64, asm.R9, asm.At(asm.R9, -copySkip))
	n.OpImm(asm.Cmp, asm.W32, asm.AX, copyRDI)
	n.JccShort(asm.E, di)
	n.JccShort(asm.B, si)
	n.Store(asm.W64, asm.At(asm.DX, ucRBX), asm.R9)
	n.Jmp(n.chain)
	n.Bind(si)
	n.Store(asm.W64, asm.At(asm.DX, ucRSI), asm.R9)
	n.Jmp(n.chain)
	n.Bind(di)
	n.Store(asm.W64, asm.At(asm.DX, ucRDI), asm.R9)
	n.Jmp(n.chain)
	n.rolledBack(rolled)
}

// rolledBack changes the signal's frame after a push that found no stack. The thread continues at the
// displaced instructions, or behind a return trampoline. rcx = PushFault's value, rax its kind.
func (n *fallback) rolledBack(rolled asm.Label) {
	n.Bind(rolled)
	kept, trampoline, taken := n.NewLabel(), n.NewLabel(), n.NewLabel()
	n.Mov(asm.W64, asm.R9, asm.CX)
	n.ShiftImm(asm.Shr, asm.W64, asm.R9, rolledDepth)
	n.OpImm(asm.And, asm.W32, asm.R9, 1<<rolledBits-1)
	n.ShiftImm(asm.Shl, asm.W32, asm.R9, 3)
	n.OpLoad(asm.Add, asm.W64, asm.R9, asm.At(asm.DX, ucRSP))
	n.Store(asm.W64, asm.At(asm.DX, ucRSP), asm.R9)
	n.TestImm(asm.W32, asm.AX, rolledBack)
	n.JccShort(asm.NE, trampoline)
	n.ShiftImm(asm.Shl, asm.W64, asm.CX, 64-rolledDepth)
	n.ShiftImm(asm.Shr, asm.W64, asm.CX, 64-rolledDepth)
	n.OpImm(asm.Sub, asm.W64, asm.R9, redZone)
	n.Bind(taken)
	n.Store(asm.W64, asm.At(asm.DX, ucRIP), asm.CX)
	n.TestImm(asm.W32, asm.AX, rolledAX)
	n.JccShort(asm.E, kept)
	n.Load(asm.W64, asm.R10, asm.At(asm.R9, -8)) // the prologue's first push
	n.Store(asm.W64, asm.At(asm.DX, ucRAX), asm.R10)
	n.Bind(kept)
	n.Lock()
	n.IncMem(asm.W64, asm.At(asm.R8, fallbackTaken))
	n.Ret()
	// The slot still has the return trampoline's address. The stub there has the instance's address.
	n.Bind(trampoline)
	n.OpImm(asm.Sub, asm.W64, asm.R9, trampolineSkip)
	n.Load(asm.W64, asm.CX, asm.At(asm.R9, trampolineSkip-8))
	n.Load(asm.W64, asm.R10, asm.At(asm.CX, stubSize-trampolineOff-8))
	n.ShiftImm(asm.Shr, asm.W64, asm.R10, 64-8*stubAddr)
	n.Load(asm.W64, asm.CX, asm.At(asm.R10, instReturn))
	n.StoreImm(asm.W32, asm.At(asm.R10, instTID), 0)
	n.JmpShort(taken)
}
