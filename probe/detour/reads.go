package detour

import (
	"slices"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// Reading what may not be there
//
// A load that faults raises a signal. If a tracer lives, it takes the signal before the program
// does. Probes that were left alone have only the fallback handler, and that doesn't help if
// the program has put a handler over it, or blocks the signal. So with Params.Careful the
// detour asks the kernel before each load of the program's memory whether it would fault, by an
// rt_sigprocmask that reads eight bytes of the same page. Either the kernel finds an operation
// that it doesn't know (EINVAL), and has changed nothing, or it can't read the bytes (EFAULT).
// The page of the frame needs no question, and most other pages need one only once (known.go).
//
// Apart from read and write this is the call that programs need most: threads are created with
// it, and signals raised. Seccomp rules in force are checked before such a detour is built
// (Params.NoReads).
//
// Values are asked for before room for the record is reserved: a thread may be delayed for long
// in a system call, and unfinished records cost others.
//
// One case remains: a page that another thread unmaps between the question and the load. Such
// loads are in the exception table like all others.

// The words of the frame that the shared code uses for a question, from the stack pointer up.
const (
	readLink = 8 + 8*iota
	readAX   // the registers at the question
	readFrom // the first byte that is to be read
	readLast // the last one
	readDX
	readSI
	readDI
	readCX
	readR10
	readR11
	linkRead // the number of bytes that such a frame needs
)

const (
	sysSigprocmask = 14
	errInvalid     = -22 // EINVAL
	pageShift      = 12
)

// Reads reports whether a program's detours load memory that may not be there.
func Reads(prog *fetch.Program) bool {
	if prog.Stack != nil || slices.ContainsFunc(prog.Entry, func(c fetch.Capture) bool { return c.MayFault(nil) }) {
		return true
	}
	return slices.ContainsFunc(prog.Args, func(a fetch.ArgProgram) bool { return reads(prog, &a) })
}

// reads is Reads for an argument.
func reads(prog *fetch.Program, a *fetch.ArgProgram) bool {
	switch a.Store {
	case fetch.StoreValue, fetch.StoreSymbol, fetch.StoreText, fetch.StoreParts:
	case fetch.StorePath:
		if a.Type.Base == fetch.FilePath {
			return true
		}
	default:
		return a.Source != fetch.SourceComm
	}
	return a.MayFault(prog.Entry) || a.Len != nil && a.Len.MayFault(prog.Entry) ||
		slices.ContainsFunc(a.Parts, func(p fetch.Part) bool { return p.MayFault(prog.Entry) })
}

// NeedsShared reports whether a program's detours need Params.Shared.
func (p *Params) NeedsShared(prog *fetch.Program) bool {
	return HasTexts(prog) || p.Careful && Reads(prog)
}

// careful reserves room in the frame for the questions of a program.
func (b *builder) careful(prog *fetch.Program) {
	if !b.p.NeedsShared(prog) || !b.p.Careful {
		return // texts in the frame itself are measured by the same code, and need no question
	}
	b.frame.regs = append(b.frame.regs, missing(b.frame.regs, asm.DI, asm.R10, asm.R11)...)
	b.frame.under = max(b.frame.under, linkRead)
}

// mayRead is mayFault for the next instruction, which reads n bytes at m. If the kernel must be
// asked, and the bytes can't be read, the code continues at fault without a load. It changes
// the flags, and no register.
func (b *builder) mayRead(m asm.Mem, n int, fault asm.Label) {
	b.canRead(m, n, fault)
	b.mayFault(fault)
}

// canRead continues at fault if the kernel must be asked and says that n bytes at m can't be
// read. It changes the flags, and no register.
func (b *builder) canRead(m asm.Mem, n int, fault asm.Label) {
	if !b.p.Careful {
		return
	}
	if !b.shared && b.p.Shared == nil {
		b.fail(errNoShared)
		return
	}
	const page = 1 << pageShift
	b.mayFail++
	word := func(off int32) asm.Mem { return asm.At(asm.SP, off) }
	for from := 0; from < n; from += page {
		link := b.NewLabel()
		b.Store(asm.W64, word(readAX), asm.AX)
		b.Lea(asm.AX, m.Plus(int32(from)))
		b.Store(asm.W64, word(readFrom), asm.AX)
		if last := min(n-from, page) - 1; last > 0 {
			b.Lea(asm.AX, asm.At(asm.AX, int32(last)))
		}
		b.Store(asm.W64, word(readLast), asm.AX)
		b.Lea(asm.AX, asm.Rel(link))
		b.Store(asm.W64, word(readLink), asm.AX)
		if b.shared {
			b.Jmp(b.reading)
		} else {
			b.MovAbs(asm.AX, b.p.Shared.read)
			b.JmpRegNoTrack(asm.AX)
		}
		b.Bind(link)
		b.Jcc(asm.S, fault)
	}
}

// readable is the shared code of canRead. It returns with SF set if the memory can't be read.
// All registers stay.
func (b *builder) readable() {
	type kept struct {
		reg asm.Reg
		at  int32
	}
	few, more := []kept{{asm.DX, readDX}, {asm.SI, readSI}, {asm.CX, readCX}}, []kept{{asm.DI, readDI}, {asm.R10, readR10}, {asm.R11, readR11}}
	word := func(off int32) asm.Mem { return asm.At(asm.SP, off) }
	keep := func(list []kept) {
		for _, k := range list {
			b.Store(asm.W64, word(k.at), k.reg)
		}
	}
	restore := func(list []kept) {
		for _, k := range list {
			b.Load(asm.W64, k.reg, word(k.at))
		}
	}
	again, next, done, bad := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	keep(few)
	b.Load(asm.W64, asm.SI, word(readFrom))
	b.Bind(again)
	b.Mov(asm.W64, asm.AX, asm.SI)
	b.Op(asm.Xor, asm.W64, asm.AX, asm.SP)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, pageShift)
	b.Jcc(asm.E, next)
	b.recall(next)
	keep(more)
	b.OpImm(asm.And, asm.W64, asm.SI, -8)
	b.mayAsk(AskHit, bad)
	b.strict()
	b.begin(bad)
	b.MovImm(asm.AX, sysSigprocmask)
	b.OpImm(asm.Or, asm.W64, asm.DI, -1) // how: an operation that doesn't exist
	b.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	b.MovImm(asm.R10, 8)
	b.Syscall()
	b.asked()
	b.OpImm(asm.Cmp, asm.W64, asm.AX, errInvalid)
	b.Jcc(asm.NE, bad)
	b.remember()
	restore(more)
	b.Bind(next)
	b.Mov(asm.W64, asm.AX, asm.SI)
	b.Load(asm.W64, asm.SI, word(readLast))
	b.Op(asm.Xor, asm.W64, asm.AX, asm.SI)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, pageShift)
	b.Jcc(asm.NE, again)
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Bind(done)
	b.Test(asm.W32, asm.AX, asm.AX)
	restore(few)
	b.Load(asm.W64, asm.AX, word(readAX))
	b.Raw(0x3e) // notrack
	b.JmpMem(word(readLink))
	b.Bind(bad)
	restore(more)
	b.OpImm(asm.Or, asm.W32, asm.AX, -1)
	b.Jmp(done)
}

// noReads returns an error if a program loads memory that may not be there, and the target can't ask the
// kernel about it.
func (p *Params) noReads(prog *fetch.Program) error {
	if p.Careful && p.NoReads && Reads(prog) {
		return unsupported("what it reads may fault, and checking that takes a system call, which seccomp rules may forbid")
	}
	return nil
}
