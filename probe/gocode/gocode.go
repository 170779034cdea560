// Package gocode says where in the code of Go's compiler a detour has stack, and
// how much: pure, from a function's bytes.
package gocode

import (
	"bytes"
	"encoding/binary"

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
// At the entry and the exits of a function without a check r12 and the flags
// are free, too, and r14 is the goroutine (abi-internal.md): there the detour
// looks whether the stack has room. Where it has none the hit is taken by a
// breakpoint in the detour. So it is where a stack is grown, from where the function
// starts over. Nobody hands r12 or r13 to a function: one that has no use for them
// leaves both free everywhere, and what is in the flags is kept there; as it is at
// the branch of a check. Everywhere else in such a function a probe stays a breakpoint.
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
	None     Room = iota // there may be none
	Plenty               // it is another language's function, on a stack of that language
	Checked              // the function has checked
	Look                 // the detour has to look, with r12, r14 and the flags
	LookKeep             // it has to look, with r12, r13 and r14, and to keep the flags
)

// Func is what is known of a function in a file that Go's linker made. It is not
// changed once Of has made it.
type Func struct {
	kind symbols.GoKind
	// In a function that checks its stack: where the body starts and where it
	// ends, as offsets. Behind it lies what has the stack grown.
	checked, slow uint64
	branch        uint64 // where the check branches to its end
	inR14         bool   // the check takes the goroutine from r14
	// In one that doesn't: the entry's and the exits' free registers are free.
	look bool
	// And in all of it: it has no use for r12 and r13, and r14 is the goroutine.
	spare bool
	why   string // why not
}

// function is a function's code at an address.
type function struct {
	code  []byte
	start uint64
	sweep *insn.Function
}

// Of takes a function apart, of which code are the bytes, at start, and sweep the
// instructions.
func Of(kind symbols.GoKind, code []byte, start uint64, sweep *insn.Function) *Func {
	f := &function{code, start, sweep}
	g := &Func{kind: kind}
	if g.kind == symbols.GoForeign {
		return g
	}
	if f.stackCheck(g); g.checked != 0 {
		return g
	}
	if g.kind != symbols.GoCompiled {
		g.why = "it is not of Go's compiler: what stack and registers it leaves is not known"
		return g
	}
	g.why = "the function doesn't check its stack, so there may be no room for a detour"
	g.look, g.spare = f.looks(), f.spares()
	return g
}

// Room says how a detour at an offset gets its stack. exit says that the
// instruction there leaves the function (Leaves); why is set where there is none.
func (g *Func) Room(off uint64, exit bool) (r Room, why string) {
	switch {
	case g.kind == symbols.GoForeign:
		return Plenty, ""
	case g.checked != 0 && off >= g.checked && off < g.slow:
		return Checked, ""
	case g.KeepsG() && off >= g.slow:
		// It spills parameters, calls morestack, and starts over.
		return Look, ""
	case g.KeepsG() && off == g.branch:
		return LookKeep, ""
	case g.checked != 0:
		return None, "the function's stack is not checked there, so there may be no room for a detour"
	case g.look && (off == 0 || exit):
		return Look, ""
	case g.spare:
		return LookKeep, ""
	}
	return None, g.why
}

// KeepsG reports whether r14 is the goroutine from behind the check of the stack to
// the function's exits, as in all code of Go's compiler of the register convention.
func (g *Func) KeepsG() bool { return g.kind == symbols.GoCompiled && g.checked != 0 && g.inR14 }

// Entry is the offset at which a probe of the function's entry stands: 0, or
// behind the check of the stack.
func (g *Func) Entry() uint64 { return g.checked }

// Leaves reports whether the instruction at an address ends the call of its
// function, which is size bytes long: r12, r13 and the flags are then free.
func Leaves(sweep *insn.Function, start, size, at uint64) bool {
	i, code, ok := sweep.At(at)
	if !ok {
		return false
	}
	if i.Flags.Any(insn.Ret) {
		return true
	}
	to, direct := i.Target(at, code)
	return direct && i.Flags.Any(insn.Jmp) && to-start >= size
}

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
	for _, t := range f.sweep.Targets() {
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
	g.checked, g.slow, g.branch, g.inR14 = checked, to, uint64(n), rex&^4 == 0x49
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

// looks reports whether a function without a stack check is one in which r14 is
// the goroutine from the start, and at whose entry r12 and the flags are free:
// it doesn't set r14 (wrappers for callers of the old convention do), doesn't
// jump to its start, and doesn't read r12 before it sets it.
func (f *function) looks() bool {
	for _, t := range f.sweep.Targets() {
		if !t.Call && t.To == f.start {
			return false
		}
	}
	free := insn.Set(insn.R12)
	straight, called := true, false
	for _, i := range f.sweep.All() {
		if !called && i.RegsWritten().Has(insn.R14) {
			return false
		}
		called = called || i.Flags.Any(insn.Call)
		if !straight {
			continue
		}
		if i.RegsRead()&free != 0 {
			return false
		}
		free &^= i.RegsWritten()
		straight = !i.Flags.Any(insn.Jmp | insn.CondBranch | insn.Call | insn.Ret | insn.Stops)
	}
	return true
}

// spares reports whether a function without a stack check has no use for r12 and
// r13, neither of which the calling convention hands to it, and keeps the goroutine
// in r14, at least up to its first call.
func (f *function) spares() bool {
	called := false
	for _, i := range f.sweep.All() {
		if i.Regs().Has(insn.R12) || i.Regs().Has(insn.R13) || !called && i.RegsWritten().Has(insn.R14) {
			return false
		}
		called = called || i.Flags.Any(insn.Call)
	}
	return len(f.sweep.Desyncs()) == 0
}
