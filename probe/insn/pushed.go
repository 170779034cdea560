package insn

// A return as a jump
//
// A return goes to the address at the stack pointer. If code has put another address there, the return is a jump, and the
// call returns elsewhere:
//
//	push rax; ret
//	call 1f; 2: pause; jmp 2b; 1: mov [rsp], rax; ret        (a retpoline)
//
// An address that was taken off the stack may be put back, as vfork does: then it is a return after all.

// pushed reports whether the k-th instruction, a return, goes to an address that code before it has put on the stack. It
// follows that word back to where it was written: over instructions that run one after the other, up to a call, a jump, or
// one after which the stack pointer isn't known.
func (f *Function) pushed(k int) bool {
	w := word{in: NoReg}
	for n := k - 1; n >= max(k-outerLookback, 0) && !f.flags[n].Any(Stops|Call); n-- {
		if w.in == NoReg && !f.flags[n].Any(WritesSP|MemWrite) {
			continue
		}
		i, code := f.inst(n)
		if known := w.before(i, code); !known {
			return w.put
		}
	}
	return w.in != NoReg || w.off < 0
}

// word is where the word is that a return will take, before an instruction: at an offset from the stack pointer, or in a
// register. An offset below 0 is none of a caller's.
type word struct {
	off int64
	in  Reg
	// put says that it was made by the function.
	put bool
}

// before changes w from behind an instruction to before it. known is false if that can't be told, or the word was put there.
func (w *word) before(i Inst, code []byte) (known bool) {
	if w.in != NoReg {
		return w.inRegister(i, code)
	}
	base, index, _, disp, memory := i.Mem(code)
	n, adjusts := i.adjusts(code)
	switch legacy := i.Encoding == Legacy && i.Map == 0; {
	case adjusts && i.Flags.Has(WritesSP):
		w.off += n
	case i.Flags.Any(Push | Pop):
		return i.Prefixes&PrefixOpSize == 0 && w.overPush(i)
	case i.Flags.Has(WritesSP):
		return false
	case !legacy || !memory || base != RSP || index != NoReg || disp != w.off || i.REX&REXW == 0:
	case i.Opcode == 0x87 || i.Opcode == 0x89: // xchg, mov
		w.in = i.RegField()
	case i.Opcode == 0xc7:
		w.put = true
	}
	return !w.put
}

// overPush is before for a push or pop of 64 bits.
func (w *word) overPush(i Inst) (known bool) {
	switch {
	case i.Flags.Has(Pop):
		w.off += 8
		return !i.pops(RSP) && i.Opcode != 0x8f
	case w.off != 0:
		w.off -= 8
	case i.Encoding == Legacy && i.Map == 0 && i.Opcode&^7 == 0x50:
		w.in = Reg(i.Opcode&7 | i.REX&REXB<<3)
	default:
		w.put = true
	}
	return !w.put
}

// inRegister is before for a word in a register. What is added to a return address makes it no other word.
func (w *word) inRegister(i Inst, code []byte) (known bool) {
	if !i.RegsWritten().Has(w.in) {
		return true
	}
	base, index, _, disp, memory := i.Mem(code)
	to, from, moves := i.moves()
	switch legacy := i.Encoding == Legacy && i.Map == 0; {
	case i.pops(w.in):
		w.off, w.in = 0, NoReg
	case legacy && (i.Opcode == 0x8b || i.Opcode == 0x87) && base == RSP && index == NoReg && i.REX&REXW != 0:
		w.off, w.in = disp, NoReg
	case moves && to == w.in && from != RSP:
		w.in = from
	case legacy && i.Opcode == 0x8d && index == NoReg && base != NoReg && base != RSP:
		w.in = base
	case memory || !i.RegsRead().Has(w.in):
		w.put = true
	}
	return !w.put
}
