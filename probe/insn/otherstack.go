package insn

// Where a function leaves on another stack frame
//
// Code that ends the calls under way, and goes on in the function of an outer one, sets the stack
// pointer and takes the address from there:
//
//	mov rsp, rcx; pop rcx; jmp rcx       or     mov rsp, rcx; ret
//	lea rsp, [rsp+rcx+n]; pop rcx; ...   or     mov rsp, [rdi+56]; pop rdi; ret
//
// So exceptions are delivered (__builtin_eh_return, and what libunwind does by hand). The same
// instructions switch between coroutines, if the function also keeps its own stack pointer
// somewhere: then the call returns later.

// outerLookback is how many instructions before the end may belong to this.
const outerLookback = 32

// setsStack reports whether the last instruction before the k-th that changes the stack pointer,
// push and pop excepted, sets it to what is in memory or in a register other than the frame pointer,
// or changes it by such a number. A function that takes its arguments off the stack does the latter, too, and then
// pushes its return address again. set is the instruction's number.
func (f *Function) setsStack(k int) (set int, ok bool) {
	pushed := false
	for n := k - 1; n >= max(k-outerLookback, 0) && !f.flags[n].Any(Stops|Call); n-- {
		if !f.flags[n].Has(WritesSP) || f.flags[n].Any(Push|Pop) {
			pushed = pushed || f.flags[n].Has(Push)
			continue
		}
		i, code := f.inst(n)
		if i.Encoding != Legacy || i.Map != 0 {
			return n, false
		}
		if to, from, ok := i.moves(); ok {
			return n, to == RSP && from != RBP
		}
		base, index, _, _, memory := i.Mem(code)
		switch i.Opcode {
		case 0x01, 0x03: // add
			return n, !pushed
		case 0x8b:
			return n, memory && base != RSP && base != RBP
		case 0x8d:
			return n, index != NoReg && !pushed
		}
		return n, false
	}
	return 0, false
}

// leavesFrames reports whether the k-th instruction, a jump, ends the call under way and outer ones: it
// jumps to an address that was popped off a stack that was set, and nobody can have the function's
// own one.
func (f *Function) leavesFrames(k int, jump Inst) bool {
	if jump.mod() != 3 {
		return false
	}
	set, ok := f.setsStack(k)
	if !ok || f.joined(k) > f.at(set) {
		return false
	}
	for n := k - 1; n > set; n-- {
		i, _ := f.inst(n)
		if i.RegsWritten().Has(jump.rm()) {
			return i.pops(jump.rm()) && !f.keepsStack()
		}
	}
	return false
}

// pops reports whether an instruction pops a register.
func (i Inst) pops(r Reg) bool {
	return i.Encoding == Legacy && i.Map == 0 && i.Opcode&^7 == 0x58 && Reg(i.Opcode&7|i.REX&REXB<<3) == r
}

// keepsStack reports whether an instruction copies the stack pointer, or an address that is relative to
// it, to somewhere other than the frame pointer.
func (f *Function) keepsStack() bool {
	for n := range f.starts {
		i, code := f.inst(n)
		if i.Encoding != Legacy || i.Map != 0 {
			continue
		}
		to, from, moves := i.moves()
		base, _, _, _, memory := i.Mem(code)
		switch {
		case moves:
			if from == RSP && to != RBP {
				return true
			}
		case i.Opcode == 0x89 && memory && i.RegField() == RSP,
			i.Opcode == 0x87 && (i.RegField() == RSP || !memory && i.rm() == RSP),
			i.Opcode&^7 == 0x90 && i.Opcode&7|i.REX&REXB<<3 == byte(RSP),
			i.Opcode == 0x8d && base == RSP && i.RegField() != RSP,
			i.Opcode == 0x54 && i.REX&REXB == 0: // push
			return true
		}
	}
	return false
}
