// Package gocode says where in the code of Go's compiler a detour has stack, and how much, and
// where Go's runtime keeps its data. It is pure: it works on the bytes of functions.
package gocode

import (
	"bytes"
	"encoding/binary"
	"sync"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// Where a detour has stack in Go code
//
// A goroutine's stack is small, and below it lies another's memory. What a
// function may rely on is what the linker proves (cmd/link, stackcheck.go;
// internal/abi, stack.go):
//
//   - A function that compares SP with g.stackguard0 where it starts, and has
//     passed, has at least StackLimit = 800 bytes below its frame, until it
//     returns. A detour in its body takes a part of them.
//   - Everywhere else (before that check, in the code that has the stack grown,
//     in functions without a check) there may be nothing at all.
//
// So a probe of the entry of a function with a check is put behind the check:
// registers and the stack pointer are there what they were at the entry, but
// for r12 and the flags, which the calling convention leaves undefined. A call
// whose stack has to grow first starts over at the entry, and is one hit, as it
// is one call.
//
// Everywhere else the detour looks whether the stack has room, and where it has
// none the hit is taken by a breakpoint in the detour. For that it needs a register,
// or two where the flags have to stay: those that are free there (lives.go), and the
// goroutine, whose first words bound the stack. It is in r14 in functions of Go's
// compiler, and in all others where the thread's own memory has it. Where none are
// free a probe stays a breakpoint.
//
// A detour is no place where a goroutine is preempted or its stack is moved:
// signals are held until the thread has left it, and without a tracer Go's
// handler finds an address that is none of its code, and lets it be.

// StackBytes is what a detour may use in the body of a function that has
// checked its stack: StackLimit less a red zone, which assembly may use, and
// what a copy of a displaced instruction may take.
const StackBytes = 512

// Room says how a detour gets its stack.
type Room uint8

// The ways in which a detour gets its stack.
const (
	None    Room = iota // there may be none
	Plenty              // it is another language's function, on a stack of that language
	Checked             // the function has checked
	Look                // the detour has to look
)

// Stack is what a detour has to know of its stack.
type Stack struct {
	Room Room
	// Of Look: the registers that are free there, and whether the flags are.
	Free  insn.RegSet
	Flags bool
	// TLS is where the goroutine is, in the segment fs; 0: in r14.
	TLS int32
	// RedZone says that there may be something below the stack pointer.
	RedZone bool
}

// Func is what is known of a function in a file that Go's linker made. It is not
// changed once Of has made it, and safe for concurrent use.
type Func struct {
	kind symbols.GoKind
	// In a function that checks its stack: where the body starts and where it
	// ends, as offsets. Behind it lies what has the stack grown.
	checked, slow uint64
	inR14         bool // the check takes the goroutine from r14
	keepsR14      bool // in one that doesn't: r14 is the goroutine
	// In one of Go's compiler: what is free in all of it, and at its entry besides.
	spare, atEntry lives
	start          uint64
	alive          func() alive
	tls            int32
}

// function is a function's code at an address.
type function struct {
	code  []byte
	start uint64
	sweep *insn.Function
}

// Of takes a function apart, of which code are the bytes, at start, and sweep the
// instructions; p's file has it at vaddr.
func Of(p *Program, vaddr symbols.Vaddr, code []byte, start uint64, sweep *insn.Function) *Func {
	f := &function{code, start, sweep}
	kind := p.kind(vaddr)
	return f.known(kind, p.tls(), func() alive { return p.trace(f, vaddr, kind) })
}

func (f *function) known(kind symbols.GoKind, tls int32, trace func() alive) *Func {
	g := &Func{kind: kind, start: f.start, tls: tls, alive: sync.OnceValue(trace)}
	if kind != symbols.GoForeign {
		f.stackCheck(g)
		g.keepsR14 = f.keepsR14()
	}
	if kind == symbols.GoCompiled {
		g.spare, g.atEntry = f.spares()
	}
	return g
}

// usable are the registers that a detour may look with: what the stack hangs on is
// left alone, and rax, in which flags are kept.
const usable = ^lives(1<<insn.RAX|1<<insn.RSP|1<<insn.RBP|1<<insn.R14) & (flags - 1)

// Stack says how a detour at an offset gets its stack; why is set where there is
// none.
func (g *Func) Stack(off uint64) (s Stack, why string) {
	switch {
	case g.kind == symbols.GoForeign:
		return Stack{Room: Plenty}, ""
	case g.checked != 0 && off >= g.checked && off < g.slow:
		return Stack{Room: Checked, RedZone: true}, ""
	case g.kind != symbols.GoCompiled && g.kind != symbols.GoAssembled:
		return s, "neither Go's compiler nor its assembler is known to have made it: what stack it has is not known"
	}
	s = Stack{Room: Look, RedZone: g.kind == symbols.GoAssembled}
	if g.kind != symbols.GoCompiled || g.checked != 0 && !g.inR14 || g.checked == 0 && !g.keepsR14 {
		if s.TLS = g.tls; s.TLS == 0 {
			return Stack{}, "it is not known where the goroutine is, which knows whether the stack has room for a detour"
		}
	}
	free := ^g.alive().at(g.start+off) | g.spare
	if off == 0 {
		free |= g.atEntry
	}
	s.Free, s.Flags = insn.RegSet(free&usable), free&flags != 0
	need := 1
	if !s.Flags {
		need = 2
	}
	if s.Free.Len() < need {
		return Stack{}, "the function's stack is not checked there, and too few registers are free to look whether it has room for a detour"
	}
	return s, ""
}

// KeepsG reports whether r14 is the goroutine from behind the check of the stack to
// the function's exits, as in all code of Go's compiler of the register convention.
func (g *Func) KeepsG() bool { return g.kind == symbols.GoCompiled && g.checked != 0 && g.inR14 }

// Entry is the offset at which a probe of the function's entry stands: 0, or
// behind the check of the stack.
func (g *Func) Entry() uint64 { return g.checked }

// stackCheck finds where a function's body starts, behind the check of its
// stack, and where it ends: at the code that has the stack grown and jumps
// back to the start, and notes it in g. Both are 0 if it doesn't start with a check.
func (f *function) stackCheck(g *Func) {
	code := f.code
	n := 0
	skip := func(b ...byte) bool {
		if n > len(code) {
			return false
		}
		if bytes.HasPrefix(code[n:], b) {
			n += len(b)
			return true
		}
		return false
	}
	take := func(size int) bool { n += size; return n <= len(code) }
	low := uint64(0) // where a frame that wraps around branches to
	large := true
	rex, modrm := byte(0x49), byte(0x66) // r14 is the goroutine
	switch {                             // functions of the old convention load it first
	case skip(0x64, 0x4c, 0x8b, 0x34, 0x25): // mov r14, fs:disp32
		take(4)
	case skip(0x64, 0x48, 0x8b, 0x0c, 0x25): // mov rcx, fs:disp32
		take(4)
		rex, modrm = 0x48, 0x61
	}
	switch {
	case skip(0x4c, 0x8d, 0x64, 0x24): // lea r12, [rsp+disp8]
		large = take(1)
	case skip(0x4c, 0x8d, 0xa4, 0x24): // lea r12, [rsp+disp32]
		large = take(4)
	case skip(0x49, 0x89, 0xe4): // mov r12, rsp; sub r12, imm32; jb
		if !skip(0x49, 0x81, 0xec) || !take(4) {
			return
		}
		to, size := jumpTo(code, n, 2)
		if size == 0 {
			return
		}
		low = to
		n += size
	default:
		large = false
	}
	// cmp r12 or rsp with g.stackguard0, at 16, or stackguard1, at 24
	if large {
		rex |= 4 // r12
	}
	if !skip(rex, 0x3b, modrm) || !skip(0x10) && !skip(0x18) {
		return
	}
	to, size := jumpTo(code, n, 6) // jbe
	if size == 0 || low != 0 && low != to {
		return
	}
	checked := uint64(n + size)
	if to <= checked || to >= uint64(len(code)) || !f.sweep.Boundary(f.start+to) || !f.sweep.Boundary(f.start+checked) {
		return
	}
	// From there a call and a jump back to the start, and no way back into
	// the body.
	back := false
	for t := range f.sweep.Targets() {
		from := t.From - f.start
		if t.Call || from < to {
			continue
		}
		if t.To != f.start {
			return
		}
		back = true
	}
	if !back {
		return
	}
	g.checked, g.slow, g.inR14 = checked, to, rex&^4 == 0x49
}

// jumpTo reads a conditional jump forward at n, with that condition: the offset
// it leads to and its size, 0 if there is none.
func jumpTo(code []byte, n int, cond byte) (to uint64, size int) {
	if n+6 > len(code) {
		return 0, 0
	}
	switch {
	case code[n] == 0x70|cond:
		return uint64(n + 2 + int(int8(code[n+1]))), 2
	case code[n] == 0x0f && code[n+1] == 0x80|cond:
		return uint64(int64(n+6) + int64(int32(binary.LittleEndian.Uint32(code[n+2:])))), 6
	}
	return 0, 0
}

// keepsR14 reports whether r14 is the goroutine throughout a function of Go's
// compiler without a stack check: it doesn't set r14, as wrappers for callers of the
// old convention do, at least up to its first call.
func (f *function) keepsR14() bool {
	for _, i := range f.sweep.All() {
		if i.RegsWritten().Has(insn.R14) {
			return false
		}
		if i.Flags.Any(insn.Call) {
			break
		}
	}
	return true
}

// spares are registers that a function of Go's compiler has no use for: nobody
// hands r12 or r13 to it, nor flags. At the entry they are free also if it uses them,
// unless it comes back there.
func (f *function) spares() (everywhere, entry lives) {
	var used lives
	for _, i := range f.sweep.All() {
		used |= lives(i.Regs())
	}
	if len(f.sweep.Desyncs()) > 0 {
		used = allLives
	}
	entry = scratch
	set := lives(0)
	for _, i := range f.sweep.All() {
		entry &^= lives(i.RegsRead()) &^ set
		if set |= lives(i.RegsWritten()); i.Flags.Any(insn.Jmp | insn.CondBranch | insn.Call | insn.Stops) {
			break
		}
	}
	for t := range f.sweep.Targets() {
		if !t.Call && t.To == f.start {
			entry = 0
		}
	}
	return scratch &^ (used | flags), entry
}
