package detour

import (
	"kprobe/probe/asm"
)

// The thread's number
//
// A thread's number is in its control block, to which fs leads. But fs is the program's: it may
// be 0 before the block is made, or in a thread of raw clone, or lead to something else for a
// while (coroutines, emulators). So the block must contain its own address, where C libraries
// keep that, and a number. Otherwise the tracer is asked, at the cost of a breakpoint: by an
// Ask, at a hlt, or where the block can't be read. In Go programs, threads that aren't Go's ask
// the kernel.

// Answer is the subject of an Ask.
type Answer uint8

const (
	// AskTime is a rdtsc that the program has forbidden itself (PR_SET_TSC, strict
	// seccomp). The answer in rax is the low half of the time stamp counter, in rdx the
	// high half.
	AskTime Answer = iota
	// AskThread asks for the thread's number, in rax: if the control block can't be read,
	// or if the kernel refuses gettid or would kill for it.
	AskThread
	// AskHit has no answer: a tracer takes the hit instead. Without a tracer the thread
	// continues without what the kernel would have told.
	AskHit
	// AskNothing is for an fs that leads nowhere: the thread continues at Back as it is.
	AskNothing
)

// Ask is an instruction that may fault because of something that the program has changed. A
// tracer puts the answer into registers and continues the thread at Back.
type Ask struct {
	At, Back uint64
	What     Answer
}

type asking struct {
	at   uint64
	back asm.Label
	what Answer
}

// mayAsk notes that the next instruction may fault to ask, and that the thread then continues at back.
func (b *builder) mayAsk(what Answer, back asm.Label) {
	b.asks = append(b.asks, asking{b.Here(), back, what})
}

// tid sets AX to the thread's number. Changes DX; a system call changes R11, too.
func (b *builder) tid() { b.number(true) }

// ownTID is tid for a number that is shown to nobody: the block may be a copy of another one.
func (b *builder) ownTID() { b.number(false) }

func (b *builder) number(exact bool) {
	t := &b.p.TID
	back := b.NewLabel()
	if t.Seg == asm.DS {
		b.gettid(back)
		b.Bind(back)
		return
	}
	unknown := b.NewLabel()
	if len(t.Path) > 0 {
		m := asm.SegAbs(t.Seg, t.Off)
		for _, off := range t.Path {
			b.mayAsk(AskThread, back)
			b.Load(asm.W64, asm.AX, m)
			b.Test(asm.W64, asm.AX, asm.AX)
			b.Jcc(asm.E, unknown)
			m = asm.At(asm.AX, off)
		}
		b.mayAsk(AskThread, back)
		b.Load(asm.W32, asm.AX, m)
		b.Test(asm.W32, asm.AX, asm.AX) // 0: not yet written, early in a thread's life
		b.Jcc(asm.E, unknown)
		b.Bind(back)
		b.later(func() {
			b.Bind(unknown)
			b.gettid(back) // this thread isn't one of Go's runtime
		})
		return
	}
	if exact && b.p.FSGSBase { // (rdfsbase is slower than a load)
		b.Rdfsbase(asm.AX)
	} else {
		b.mayAsk(AskThread, back)
		b.Load(asm.W64, asm.AX, asm.SegAbs(t.Seg, 0))
	}
	b.mayAsk(AskThread, back)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.AX, 0))
	b.JccShort(asm.NE, unknown)
	b.mayAsk(AskThread, back)
	b.Load(asm.W32, asm.AX, asm.At(asm.AX, t.Off))
	b.Test(asm.W32, asm.AX, asm.AX)
	b.JccShort(asm.NE, back)
	b.Bind(unknown)
	b.ask(back)
	b.Bind(back)
}

// ask asks the tracer for the thread's number, by an instruction of one byte that faults.
func (b *builder) ask(back asm.Label) {
	b.mayAsk(AskThread, back)
	b.Hlt()
}

// gettid asks the kernel for the thread's number, in AX, and continues at back. Changes DX and R11.
func (b *builder) gettid(back asm.Label) {
	refused := b.NewLabel()
	b.mayAsk(AskThread, back)
	b.strict()
	b.begin(refused)
	b.Mov(asm.W64, asm.DX, asm.CX)
	b.MovImm(asm.AX, sysGettid)
	b.Syscall()
	b.asked()
	b.Mov(asm.W64, asm.CX, asm.DX)
	b.Test(asm.W32, asm.AX, asm.AX)
	b.Jcc(asm.G, back)
	b.Bind(refused)
	if b.p.Calls != 0 { // no tracer can be asked
		b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
		b.Jmp(back)
		return
	}
	b.ask(back)
}

// strict faults if the program is in seccomp's strict mode: rdtsc is forbidden there. A system call would kill the
// program instead. Changes AX and DX.
func (b *builder) strict() { b.Rdtsc() }

// halves reads the time stamp counter: the high half into DX, the low half into AX. Where nobody can answer
// for a counter that the program has forbidden itself, it is 0.
func (b *builder) halves() {
	back := b.NewLabel()
	if b.p.Careful {
		b.MovImm(asm.AX, 0)
		b.MovImm(asm.DX, 0)
	}
	b.mayAsk(AskTime, back)
	b.Rdtsc()
	b.Bind(back)
}

// tsc sets AX to the time stamp counter. Changes DX.
func (b *builder) tsc() {
	b.halves()
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	b.Op(asm.Or, asm.W64, asm.AX, asm.DX)
}

// stamp stores the time stamp counter. Changes AX and DX.
func (b *builder) stamp(to ...asm.Mem) {
	b.halves()
	if len(to) == 1 {
		b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
		b.Op(asm.Or, asm.W64, asm.AX, asm.DX)
		b.Store(asm.W64, to[0], asm.AX)
		return
	}
	for _, m := range to {
		b.Store(asm.W32, m, asm.AX)
		b.Store(asm.W32, m.Plus(4), asm.DX)
	}
}
