package gocode

import (
	"cmp"
	"slices"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// Which registers are free
//
// A register is free at an instruction if on every way from there it is
// overwritten before it is used: whatever a detour leaves in it, nobody sees. Ways
// end where a function is left, and there conventions say what is looked at. They
// are taken as wide as code is written:
//
//   - Behind the return of a compiled function, and where one is called, r12, r13
//     and the flags are free (abi-internal.md). Nothing else is taken to be.
//   - Assembly follows a convention of its own now and then. Where it is called
//     directly its own instructions say what it uses, and it is taken to keep all
//     it doesn't use. Behind its return r10, r11 and the flags are free, in which
//     neither Go nor C returns anything to whom calls by a pointer, and if compiled
//     functions call it r12 and r13; but for those that the function itself saves
//     or is handed, and those that are used behind one of the calls of it in
//     assembly, which are looked for in the whole file.
//   - Where control goes is unknown, nothing is free.

// lives is a set of registers, by number, and the flags.
type lives uint32

const (
	flags    lives = 1 << 16
	allLives lives = 1<<17 - 1

	// What is free by the convention of Go's compiler, between functions.
	scratch = lives(1<<insn.R12|1<<insn.R13) | flags
	// What assembly returns nothing in.
	noResult = lives(1<<insn.R10|1<<insn.R11) | flags
)

// conventions say what is alive outside of a function. Addresses are the file's.
type conventions interface {
	// uses is what assembly that is entered at v may use.
	uses(v symbols.Vaddr) lives
	// handed is what may be handed to a function of the compiler.
	handed() lives
	// kind says which compiler made the function that starts at v.
	kind(v symbols.Vaddr) symbols.GoKind
}

// alive is what is alive before each of a function's instructions, in their order.
type alive []point

type point struct {
	addr uint64
	in   lives
}

func (a alive) find(addr uint64) int {
	n, ok := slices.BinarySearchFunc(a, addr, func(e point, addr uint64) int { return cmp.Compare(e.addr, addr) })
	if !ok {
		return len(a)
	}
	return n
}

// at is what is alive before the instruction at an address: all, where none is known
// to start.
func (a alive) at(addr uint64) lives {
	if n := a.find(addr); n < len(a) {
		return a[n].in
	}
	return allLives
}

// behind is what is alive before the instruction that follows one.
func (a alive) behind(addr uint64) lives {
	if n := a.find(addr) + 1; n < len(a) {
		return a[n].in
	}
	return allLives
}

// trace finds what is alive before each of a function's instructions. The function lies at f.start in its sweep, at vaddr in its file; kind is
// its own, left what is alive behind its return.
func (f *function) trace(vaddr symbols.Vaddr, kind symbols.GoKind, left lives, c conventions) alive {
	type step struct {
		in, uses, kills lives
		next, to        int // steps; -1: none
		fixed           lives
	}
	index := map[uint64]int{}
	steps := make([]step, 0, f.sweep.Len())
	for at := range f.sweep.All() {
		index[at] = len(steps)
		steps = append(steps, step{next: -1, to: -1})
	}
	stepAt := func(at uint64) int {
		if k, ok := index[at]; ok {
			return k
		}
		return -1
	}
	size := uint64(len(f.code))
	inFile := func(at uint64) symbols.Vaddr { return vaddr + symbols.Vaddr(at-f.start) }
	n := 0
	for at, i := range f.sweep.All() {
		s := &steps[n]
		n++
		s.uses, s.kills = lives(i.Uses()), lives(i.Overwrites())
		if i.ReadsFlags() {
			s.uses |= flags
		}
		if i.OverwritesFlags() {
			s.kills |= flags
		}
		to, direct := i.Target(at, f.code[at-f.start:])
		inside := direct && to-f.start < size
		falls := !i.Flags.Any(insn.Stops)
		switch {
		case i.Flags.Any(insn.Ret):
			s.fixed = left
		case i.Flags.Any(insn.Call):
			switch {
			case direct && c.kind(inFile(to)) != symbols.GoCompiled:
				s.uses |= c.uses(inFile(to))
			case direct || kind == symbols.GoCompiled:
				s.uses |= c.handed()
				s.kills |= scratch
			default:
				s.uses |= allLives
			}
		case direct && !inside && i.Flags.Any(insn.Jmp|insn.CondBranch):
			if s.fixed = c.handed(); c.kind(inFile(to)) != symbols.GoCompiled {
				s.fixed = left | c.uses(inFile(to))
			}
		case direct && i.Flags.Any(insn.Jmp|insn.CondBranch):
			if s.to = stepAt(to); s.to < 0 {
				s.fixed = allLives
			}
		case i.Flags.Any(insn.Syscall): // the flags come back
			s.uses = lives(insn.Set(insn.RAX, insn.RDI, insn.RSI, insn.RDX, insn.R10, insn.R8, insn.R9))
			s.kills |= lives(insn.Set(insn.RCX, insn.R11))
		case i.Flags.Any(insn.Jmp | insn.Trap | insn.Halt | insn.FarBranch | insn.XBegin | insn.Priv | insn.Undefined):
			s.fixed = allLives
		}
		if falls {
			if s.next = stepAt(at + uint64(i.Len)); s.next < 0 {
				s.fixed = allLives // into what is no instruction, or another function
			}
		}
	}
	for again := true; again; {
		again = false
		for k := len(steps) - 1; k >= 0; k-- {
			s := &steps[k]
			out := s.fixed
			if s.next >= 0 {
				out |= steps[s.next].in
			}
			if s.to >= 0 {
				out |= steps[s.to].in
			}
			if in := out&^s.kills | s.uses; in != s.in {
				s.in, again = in, true
			}
		}
	}
	in := make(alive, len(steps))
	for at, k := range index {
		in[k].addr, in[k].in = at, steps[k].in
	}
	return in
}
