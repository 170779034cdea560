package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// Tasks whose birth nobody sees
//
// If nobody traces a process that takes hits in restartable sequences, detours beside the
// system calls that make tasks ensure that no task is mistaken for another (seqcode.go):
//
//	before  a task with a control block of its own (CLONE_SETTLS): the area in that block is
//	        marked as having no CPU. A task that shares its maker's block: it is counted at
//	        Params.Births
//	after   the maker, which has waited until the task was gone (CLONE_VFORK) or has made
//	        none: the task is no longer counted
//
// While the word after Params.Births is 0, these detours do nothing. Whoever watches births
// himself says when they must begin, and how many tasks there are then whose makers will pass
// the second detour.
//
// While any task is counted, no hit in that memory is taken in a sequence. Three things end
// sequences for good: a task whose maker doesn't wait; a task that is made by a system call
// whose number isn't known in advance; and a maker that was not counted when it entered,
// because the detours came only afterwards.
//
// The maker's own area is not marked: from Linux 6.19 on, the kernel writes it again only when
// the thread moves to another CPU.

// Numbers of system calls, and flags of theirs.
const (
	sysClone  = 56
	sysVfork  = 58
	sysClone3 = 435

	cloneVM     = 0x100
	cloneVfork  = 0x4000
	cloneSetTLS = 0x80000

	// clone3TLS is the offset of the control block's address in struct clone_args, which
	// begins with the flags.
	clone3TLS = 56
)

// birthsBegun is the offset, from Params.Births, of the word that says whether tasks are
// counted (u32).
const birthsBegun = 4

// uncounted is the value of Params.Births once the count can no longer be right.
const uncounted = 1 << 30

// Birth says what a detour does beside a system call instruction that may make a task.
type Birth struct {
	// Number is the number of the system call: clone, clone3 or vfork. 0 means that it is
	// at From.
	Number int
	// From says where the program has a number that isn't known: in a register, or in memory that
	// a register leads to.
	From fetch.Chain
	// Args says that the argument of clone3 is the C library's own, and may be read.
	Args bool
	// Behind says that the detour is behind the instruction, else it is before it.
	Behind bool
	// Rules says that the call may set seccomp rules (asks.go), NoTask that it makes no task, or
	// that tasks are nobody's business.
	Rules, NoTask bool
	// Unmaps says that the call may end a mapping (known.go).
	Unmaps bool
}

// birth emits the code beside a system call. Changes AX, CX and DX.
func (b *builder) birth(x *Birth) {
	if x.Rules && b.p.Calls != 0 {
		b.rules(x)
	}
	if x.Unmaps && b.p.Known != 0 {
		b.unmaps(x)
	}
	if x.NoTask {
		return
	}
	done, shares := b.NewLabel(), b.NewLabel()
	b.MovAbs(asm.CX, b.p.Births)
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.CX, birthsBegun), 0)
	b.Jcc(asm.E, done)
	if x.Behind {
		b.bornBehind(x, done)
		b.Bind(done)
		return
	}
	switch {
	case x.Number == 0:
		b.anyNumber(x, shares, done)
	case x.Number == sysClone, x.Number == sysClone3 && x.Args:
		b.flagsOf(x, done)
		b.TestImm(asm.W32, asm.AX, cloneVM)
		b.Jcc(asm.E, done)
		b.TestImm(asm.W32, asm.AX, cloneSetTLS)
		b.Jcc(asm.E, shares)
		b.blockOf(x, done)
		b.hideArea(done)
		b.Jmp(done)
	}
	b.Bind(shares)
	b.MovAbs(asm.CX, b.p.Births)
	b.Lock()
	b.IncMem(asm.W32, asm.At(asm.CX, 0))
	b.Bind(done)
}

// anyNumber continues at shares if the system call, whose number is only known now, may make a task that
// shares memory, else at done.
func (b *builder) anyNumber(x *Birth, shares, done asm.Label) {
	b.numberAt(x, done)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, sysVfork)
	b.Jcc(asm.E, shares)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, sysClone3)
	b.Jcc(asm.E, shares)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, sysClone)
	b.Jcc(asm.NE, done)
	b.register(fetch.DI)
	b.TestImm(asm.W32, asm.AX, cloneVM)
	b.Jcc(asm.E, done)
}

// numberAt sets AX to the number of the system call. If a load faults, the code continues at done.
func (b *builder) numberAt(x *Birth, done asm.Label) {
	b.register(x.From.Reg)
	for _, l := range x.From.Loads { // the program makes the same loads next
		b.mayFault(done)
		b.Load(asm.W32, asm.AX, asm.At(asm.AX, int32(l.Off)))
	}
}

// flagsOf loads the flags of clone, or of clone3 if its arguments may be read, into AX.
func (b *builder) flagsOf(x *Birth, done asm.Label) {
	b.register(fetch.DI)
	if x.Number == sysClone3 {
		b.mayFault(done)
		b.Load(asm.W64, asm.AX, asm.At(asm.AX, 0))
	}
}

// blockOf loads the address of the control block that clone, or clone3 if its arguments may be read, sets
// for the task, into AX.
func (b *builder) blockOf(x *Birth, done asm.Label) {
	if x.Number == sysClone {
		b.register(fetch.R8)
		return
	}
	b.register(fetch.DI)
	b.mayFault(done)
	b.Load(asm.W64, asm.AX, asm.At(asm.AX, clone3TLS))
}

// hideArea marks the rseq area of the control block at AX as having no CPU, if the block is one of the C
// library's.
func (b *builder) hideArea(done asm.Label) {
	b.mayAsk(AskNothing, done)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.AX, 0))
	b.Jcc(asm.NE, done)
	b.mayAsk(AskNothing, done)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.AX, blockSelf))
	b.Jcc(asm.NE, done)
	b.mayAsk(AskNothing, done)
	b.StoreImm(asm.W32, b.inArea(rseqCPU), -1)
}

// bornBehind is birth behind the system call.
func (b *builder) bornBehind(x *Birth, done asm.Label) {
	b.register(fetch.AX)
	b.Mov(asm.W64, asm.CX, asm.AX)
	b.Test(asm.W64, asm.CX, asm.CX)
	b.Jcc(asm.E, done) // this is the new task
	if x.Number != sysVfork {
		over := b.NewLabel()
		b.flagsOf(x, done)
		b.TestImm(asm.W32, asm.AX, cloneVM)
		b.Jcc(asm.E, done)
		b.TestImm(asm.W32, asm.AX, cloneSetTLS)
		b.Jcc(asm.NE, done)
		b.Test(asm.W64, asm.CX, asm.CX)
		b.Jcc(asm.S, over)
		b.TestImm(asm.W32, asm.AX, cloneVfork)
		b.Jcc(asm.E, done)
		b.Bind(over)
	}
	b.MovAbs(asm.CX, b.p.Births)
	b.Lock()
	b.DecMem(asm.W32, asm.At(asm.CX, 0))
	b.Jcc(asm.NS, done)
	b.StoreImm(asm.W32, asm.At(asm.CX, 0), uncounted)
}
