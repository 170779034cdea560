package detour

import (
	"slices"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// System calls that rules could forbid
//
// Some detours ask the kernel: for a thread's name or number, a path, or whether memory can be read.
// Seccomp rules that the program sets later may kill it for that. If nobody traces the process, a
// detour beside each system call that may set rules closes the way to these questions for good
// before the rules are in force. What is asked for then is shown as (fault), or is empty.
//
// Rules may hold for all threads at once, also for one that is just about to ask. So questions are
// counted at Params.Calls:
//
//	asking   counted, then the way is found open, then the system call, then counted off
//	closing  closed, then it is waited until nothing is counted
//
// A thread that is counted may be interrupted by a signal handler that takes long or never returns.
// The wait is bounded: no program may hang for a probe.

// callsClosed is the offset, from Params.Calls, of the word that says how often the way was closed.
const callsClosed = 4

// closingRounds bounds the wait, each round of which takes 40 to 140 cycles.
const closingRounds = 1 << 22

// Numbers of the system calls that set rules, and what says that they do.
const (
	sysSeccomp    = 317
	prSetSeccomp  = 22
	setModeFilter = 1 // SECCOMP_SET_MODE_STRICT is 0
)

// Asks reports whether a program's detours ask the kernel.
func (p *Params) Asks(prog *fetch.Program) bool {
	if p.Careful && Reads(prog) || !p.NoSyscall && (p.TID.Seg == asm.DS || len(p.TID.Path) > 0) {
		return true
	}
	for q := range prog.Preds() {
		if q.Field == fetch.FieldComm {
			return true
		}
	}
	return slices.ContainsFunc(prog.Args, func(a fetch.ArgProgram) bool { return isPath(&a) || a.Source == fetch.SourceComm })
}

// begin counts a question, and continues at refused if none may be asked. Changes DX.
func (b *builder) begin(refused asm.Label) {
	if b.p.Calls == 0 {
		return
	}
	open := b.NewLabel()
	b.MovAbs(asm.DX, b.p.Calls)
	b.Lock()
	b.IncMem(asm.W32, asm.At(asm.DX, 0))
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.DX, callsClosed), 0)
	b.JccShort(asm.E, open)
	b.Lock()
	b.DecMem(asm.W32, asm.At(asm.DX, 0))
	b.Jmp(refused)
	b.Bind(open)
}

// asked counts a question off. Changes R11.
func (b *builder) asked() {
	if b.p.Calls == 0 {
		return
	}
	b.MovAbs(asm.R11, b.p.Calls)
	b.Lock()
	b.DecMem(asm.W32, asm.At(asm.R11, 0))
}

// rules closes the way to questions before a system call that sets rules. Changes AX, CX and DX.
func (b *builder) rules(x *Birth) {
	over, prctl, filter, closing, wait := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	if b.p.Alive != 0 { // a forked child takes no hits
		b.MovAbs(asm.CX, b.p.Alive)
		b.OpMemImm(asm.Cmp, asm.W8, asm.At(asm.CX, 0), 0)
		b.Jcc(asm.E, over)
	}
	switch x.Number {
	case sysPrctl:
		b.Jmp(prctl)
	case sysSeccomp:
		b.Jmp(filter)
	default:
		b.numberAt(x, over)
		b.OpImm(asm.Cmp, asm.W32, asm.AX, sysSeccomp)
		b.Jcc(asm.E, filter)
		b.OpImm(asm.Cmp, asm.W32, asm.AX, sysPrctl)
		b.Jcc(asm.NE, over)
	}
	b.Bind(prctl)
	b.register(fetch.DI)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, prSetSeccomp)
	b.Jcc(asm.NE, over)
	b.Jmp(closing)
	b.Bind(filter)
	b.register(fetch.DI)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, setModeFilter)
	b.Jcc(asm.A, over)
	b.Bind(closing)
	if b.p.Control != 0 {
		b.MovAbs(asm.CX, b.p.Control)
		b.StoreImm(asm.W8, asm.At(asm.CX, ring.ControlRules), 1)
	}
	b.MovAbs(asm.CX, b.p.Calls)
	b.Lock()
	b.IncMem(asm.W32, asm.At(asm.CX, callsClosed))
	b.MovImm(asm.AX, closingRounds)
	b.Bind(wait)
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.CX, 0), 0)
	b.Jcc(asm.E, over)
	b.Pause()
	b.OpImm(asm.Sub, asm.W32, asm.AX, 1)
	b.Jcc(asm.NE, wait)
	b.Bind(over)
}
