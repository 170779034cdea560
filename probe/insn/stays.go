package insn

// Indirect jumps that stay in the function
//
// An indirect jump may be a switch, or the end of a function: a call of what a pointer or a table of functions says, with
// nothing left to do behind it. If a switch is taken for an end, kprobe looks at each jump where it leads. If an end is
// taken for a switch, returns are lost, and nobody is told. So a jump stays in the function only if that is proved:
//
//	by its table    which leads to places of the function (Tables), or at least begins with such places
//	by the frame    which is still on the stack, as call frame information says. What is jumped to at the end of a
//	                function finds the return address at the stack pointer

// Slot is where the return address is while an instruction runs.
type Slot struct {
	// Base is the register, and Off what to add to it for the address behind the return address.
	Base Reg
	Off  int64
	// Start and End are the range of code that this is known for.
	Start, End uint64
}

// stays reports whether an indirect jump, for which Tables has no table, is known to stay in the function.
func (f *Function) stays(k int, i Inst) bool {
	if f.framed(k) {
		return true
	}
	l, ok := f.lookup(k, i)
	if !ok || !f.ofLabels(l, l.table) {
		return false
	}
	for _, at := range l.others {
		if !f.ofLabels(l, at) {
			return false
		}
	}
	return true
}

// returnSlot is the slot at the k-th instruction; ok is false if it isn't known, or also for code outside the function.
func (f *Function) returnSlot(k int) (s Slot, ok bool) {
	if f.opts.Slot == nil {
		return Slot{}, false
	}
	s, ok = f.opts.Slot(f.at(k))
	return s, ok && s.Start >= f.start && s.End <= f.End()
}

// framed reports whether the function's frame is on the stack at the k-th instruction. Compilers of old don't describe
// how the frame is given back before a jump. So the instructions before the jump must not give it back, or be described.
func (f *Function) framed(k int) bool {
	s, ok := f.returnSlot(k)
	if !ok || s.Base == RSP && s.Off <= 8 || s.Base != RSP && s.Base != RBP {
		return false
	}
	if _, other := f.setsStack(k); other {
		return false
	}
	for n := k - 1; n >= 0 && !f.flags[n].Any(Stops|Call); n-- {
		if !f.flags[n].Has(WritesSP) {
			continue
		}
		i, code := f.inst(n)
		switch {
		case f.flags[n].Has(Push) || i.takes(code):
			return true
		case s.Base == RBP:
			if i.RegsWritten().Has(RBP) {
				return false
			}
		case !i.givesBack(code):
			return false
		default:
			before, ok := f.returnSlot(n)
			return ok && before.Base == RSP && before.Off > s.Off
		}
	}
	return true
}

// unframed reports whether call frame information says that nothing of the function is on the stack at the k-th
// instruction.
func (f *Function) unframed(k int) bool {
	s, ok := f.returnSlot(k)
	return ok && s.Base == RSP && s.Off == 8
}

// takes reports whether an instruction is "sub rsp, n" or the like.
func (i Inst) takes(code []byte) bool {
	n, ok := i.adjusts(code)
	return ok && n < 0
}

// givesBack reports whether an instruction that changes the stack pointer gives stack back, as pop and "add rsp, n" do.
func (i Inst) givesBack(code []byte) bool {
	if i.Encoding != Legacy || i.Map != 0 {
		return false
	}
	n, ok := i.adjusts(code)
	return i.Opcode&^7 == 0x58 || ok && n > 0
}

// adjusts returns the number that an instruction adds to the stack pointer, as add, sub and lea do.
func (i Inst) adjusts(code []byte) (n int64, ok bool) {
	if i.Encoding != Legacy || i.Map != 0 {
		return 0, false
	}
	switch {
	case i.Opcode == 0x8d:
		base, index, _, disp, ok := i.Mem(code)
		return disp, ok && base == RSP && index == NoReg
	case i.Opcode|2 == 0x83 && i.mod() == 3 && i.rm() == RSP:
		n, ok := i.Signed(code)
		switch i.ModRM >> 3 & 7 {
		case 0:
			return n, ok
		case 5:
			return -n, ok
		}
	}
	return 0, false
}

// firstEntries is how many entries of a table are looked at for what it is of. Some may be empty.
const firstEntries = 4

// ofLabels reports whether a table begins with places of the function. Its first entry may lead to another part of it, but
// none to another function. Its start may be an entry of a table of functions, too.
func (f *Function) ofLabels(l lookup, table uint64) bool {
	n := firstEntries
	if l.entries > 0 {
		n = min(n, l.entries)
	}
	found := false
	for e := range n {
		to, ok := f.entry(l, table, e)
		switch {
		case !ok || to == f.start:
		case f.inside(to):
			found = true
		case !f.inPart(to, nil) && (l.size == 8 || to != f.End()):
			return false
		}
	}
	return found
}

// entry returns where an entry of a table leads; ok is false if it isn't known.
func (f *Function) entry(l lookup, table uint64, e int) (to uint64, ok bool) {
	at := table + uint64(e*l.size)
	if l.size == 8 {
		if f.opts.Pointer == nil {
			return 0, false
		}
		return f.opts.Pointer(at)
	}
	l.table = table
	b := f.entries(l, e, 1)
	if b == nil {
		return 0, false
	}
	return l.target(b), true
}
