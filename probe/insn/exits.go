package insn

// ExitKind is a way of leaving a function.
type ExitKind uint8

// Ways.
const (
	ExitRet      ExitKind = iota // a return
	ExitTail                     // a jump out of the function
	ExitCondTail                 // a conditional jump out of the function
	ExitTrap                     // ud2, hlt: never goes on
	ExitNoReturn                 // a call behind which no code of the function follows
	ExitFall                     // the last instruction, if control goes on behind it
	ExitOuter                    // a jump that ends the call without a return, and outer ones too
)

// String names the way.
func (k ExitKind) String() string {
	switch k {
	case ExitRet:
		return "return"
	case ExitTail:
		return "tail jump"
	case ExitCondTail:
		return "conditional tail jump"
	case ExitTrap:
		return "trap"
	case ExitFall:
		return "the function's end"
	case ExitOuter:
		return "jump to an outer call"
	}
	return "call that doesn't return"
}

// Exit is an instruction by which the function is left.
type Exit struct {
	Addr uint64
	// To is the target of a direct tail jump or call, and the address behind the function for
	// ExitFall; else 0.
	To uint64
	// Pop is what a return takes off the stack in addition to the return address.
	Pop  uint16
	Kind ExitKind
	// Indirect: the jump goes through a register or memory, and where it leads isn't known.
	Indirect bool
	// Outer: a return on a stack that was set just before. It may end outer calls, and then the call doesn't return.
	Outer bool
	// Switch: a table leads to To, which is in a part of the function.
	Switch bool
	// Sure is false for an indirect jump that may be a switch of the function, as any is that goes by a table.
	Sure bool
}

// Exits lists, in order of address, every instruction by which the function is left. An
// indirect jump is one, unless a table was found for it, or the preceding instructions are
// those of a compiler's switch, and what is known of its table doesn't contradict. The jump of a switch is in
// the list for each place in other parts of the function that its table leads to. The last instruction may be
// in the list twice.
func (f *Function) Exits() []Exit {
	var out []Exit
	for k, fl := range f.flags {
		if !fl.Any(Stops | RelBranch | Call) {
			continue
		}
		if e, ok := f.exit(k, fl); ok {
			out = append(out, e)
		} else if fl.Has(IndirectJmp) {
			out = f.appendOutside(out, f.at(k))
		}
	}
	if k := f.last(); k >= 0 && !f.flags[k].Any(Stops|Call) {
		out = append(out, Exit{Kind: ExitFall, Addr: f.at(k), To: f.End(), Sure: true})
	}
	return out
}

// last is the last instruction that isn't padding; -1 if there is none.
func (f *Function) last() int {
	last := len(f.starts) - 1
	for last > 0 && f.onlyPadding(last) {
		last--
	}
	return last
}

// Returns reports whether the function may return to its caller: it has a return, a jump out of
// it, or its end is reached. It is also true if its instructions are not all known. exits are what Exits returns.
func (f *Function) Returns(exits []Exit) bool {
	if !f.Closed() {
		return true
	}
	for _, x := range exits {
		if x.Kind.Returns() {
			return true
		}
	}
	return false
}

// Returns reports whether a call that is left that way may return.
func (k ExitKind) Returns() bool { return k != ExitTrap && k != ExitNoReturn && k != ExitOuter }

// Closed reports whether Exits has every way out: all instructions are known.
func (f *Function) Closed() bool { return len(f.desyncs) == 0 && len(f.starts) > 0 }

func (f *Function) exit(k int, fl Flags) (Exit, bool) {
	e := Exit{Addr: f.at(k), Sure: true}
	p, code := f.part(k), f.code[f.starts[k]:]
	e.To, _ = p.Target(e.Addr, code)
	switch {
	case fl.Has(Ret):
		n, _ := p.signed(code)
		e.Pop = uint16(n)
		_, e.Outer = f.setsStack(k)
	case fl.Has(Call):
		e.Kind = ExitNoReturn
		known := e.To != 0 && f.opts.NoReturn != nil && f.opts.NoReturn(e.To)
		return e, known || f.onlyPadding(k+1)
	case fl.Has(IndirectJmp):
		e.Kind, e.Indirect = ExitTail, true
		return f.indirectExit(k, e)
	case fl.Any(Jmp | CondBranch):
		e.Kind = ExitTail
		if fl.Has(CondBranch) {
			e.Kind = ExitCondTail
		}
		return e, !f.inCode(e.To) && (f.opts.Inside == nil || !f.opts.Inside(e.To))
	case fl.Any(Undefined | Halt):
		e.Kind = ExitTrap
	case fl.Has(FarBranch):
		e.Indirect = true
	default:
		return e, false
	}
	return e, true
}

// appendOutside appends an exit for each place outside the code that the table of a jump leads to.
func (f *Function) appendOutside(out []Exit, jump uint64) []Exit {
	for i := range f.tables {
		if f.tables[i].Jump != jump {
			continue
		}
		for _, to := range f.tables[i].Outside {
			out = append(out, Exit{Kind: ExitTail, Addr: jump, To: to, Switch: true, Sure: true})
		}
	}
	return out
}

// onlyPadding reports whether no-ops and int3 are all that follows.
func (f *Function) onlyPadding(k int) bool {
	for ; k < len(f.flags); k++ {
		if !f.flags[k].Has(Nop) && f.code[f.starts[k]] != 0xcc {
			return false
		}
	}
	return true
}

// OnlyPadding reports whether code is nothing but no-ops and int3, and ends with
// one of them.
func OnlyPadding(code []byte) bool {
	for len(code) > 0 {
		p, err := DecodePart(code)
		if err != nil || !p.Flags.Has(Nop) && code[0] != 0xcc {
			return false
		}
		code = code[p.Len:]
	}
	return true
}

// indirectExit judges an indirect jump: by a table it is a switch unless there is reason to think otherwise.
func (f *Function) indirectExit(k int, e Exit) (Exit, bool) {
	for _, t := range f.tables {
		if t.Jump == e.Addr {
			return e, false
		}
	}
	i, code := f.inst(k)
	if i.Flags.Has(RIPRel) {
		return e, true // through a pointer such as the global offset table's
	}
	base, index, _, _, memory := i.Mem(code)
	if l, ok := f.lookup(k, i); ok {
		e.Sure = false
		return e, f.ofFunctions(l)
	}
	if memory && index != NoReg {
		e.Sure = false
		return e, f.leftBy(k, base, index) || f.given(k, base)
	}
	if f.leavesFrames(k, i) {
		e.Kind = ExitOuter
		return e, true
	}
	e.Sure = f.afterEpilogue(k)
	return e, true
}

// kept are the registers that belong to the caller again once the stack is given back.
var kept = Set(RBX, RBP, R12, R13, R14, R15)

// leftBy reports whether the stack was given back just before a jump by [base+index*8], and not only the arguments of a
// call: the jump of an interpreter behind those goes by registers that a call leaves alone.
func (f *Function) leftBy(k int, base, index Reg) bool {
	return f.stackChanged(k, Inst.givesBack) && !kept.Has(index) && (base == NoReg || !kept.Has(base))
}

// given reports whether the register that an instruction uses as a pointer to a table was given to the function: as an
// argument, or in memory other than the stack. A compiler's own tables aren't. false: not known.
func (f *Function) given(k int, base Reg) bool {
	if base == NoReg {
		return false
	}
	from, n := f.joined(k), k-1
	for ; n >= 0 && f.at(n) >= from && !f.flags[n].Any(Call|Stops); n-- {
		i, code := f.inst(n)
		if !i.RegsWritten().Has(base) {
			continue
		}
		if i.Encoding != Legacy || i.Map != 0 {
			return false
		}
		to, source, copies := i.moves()
		if copies && to == base {
			base = source
			continue
		}
		by, _, _, _, memory := i.Mem(code)
		return memory && i.Opcode == 0x8b && by != RSP && by != RBP
	}
	return Set(RDI, RSI, RDX, RCX, R8, R9).Has(base) && (n < 0 && from == 0 || !f.writes(base))
}

// moves returns the registers of a mov of 64 bits from one register to another.
func (i Inst) moves() (to, from Reg, ok bool) {
	switch {
	case i.mod() != 3 || i.REX&REXW == 0:
		return NoReg, NoReg, false
	case i.Opcode == 0x89:
		return i.rm(), i.RegField(), true
	case i.Opcode == 0x8b:
		return i.RegField(), i.rm(), true
	}
	return NoReg, NoReg, false
}

// joined is the address from which on instructions before the k-th run one after the other, as far as is known: no
// branch leads behind it.
func (f *Function) joined(k int) (from uint64) {
	at := f.at(k)
	for _, t := range f.targets {
		if !t.call && t.to <= at {
			from = max(from, t.to)
		}
	}
	for _, t := range f.tables {
		for _, to := range t.Targets {
			if to <= at {
				from = max(from, to)
			}
		}
	}
	return from
}

// writes reports whether one of the instructions changes a register.
func (f *Function) writes(r Reg) bool {
	for n := range f.starts {
		if i, _ := f.inst(n); i.RegsWritten().Has(r) {
			return true
		}
	}
	return false
}

// firstEntries is how many entries of a table are looked at for what it is of. The first ones may be empty.
const firstEntries = 4

// ofFunctions reports whether a table is one of functions, or of structures with some. A switch may lead into another
// part of the function, with its first entry, too; an entry that leads into this part is enough to know it.
func (f *Function) ofFunctions(l lookup) bool {
	if l.size != 8 || f.opts.Pointer == nil {
		return false
	}
	found := false
	for e := range uint64(max(l.entries, firstEntries)) {
		to, ok := f.opts.Pointer(l.table + 8*e)
		switch {
		case !ok || to == f.start: // empty, or the function itself, which a switch doesn't lead to
			continue
		case f.inside(to):
			return false
		case !found && f.opts.Piece != nil && f.opts.Piece(to):
			return false
		}
		found = true
	}
	return found
}

// afterEpilogue reports whether the stack was given back just before.
func (f *Function) afterEpilogue(k int) bool {
	return f.stackChanged(k, func(Inst, []byte) bool { return true })
}

// stackChanged reports whether the last instruction that changed the stack pointer just before is one as wanted.
func (f *Function) stackChanged(k int, wanted func(Inst, []byte) bool) bool {
	for n := k - 1; n >= 0 && n >= k-6; n-- {
		if f.flags[n].Any(Stops | Call) {
			return false
		}
		if f.flags[n].Has(WritesSP) {
			return wanted(f.inst(n))
		}
	}
	return false
}

// givesBack reports whether an instruction that changes the stack pointer gives stack back, as pop, leave, "add rsp, n"
// and "lea rsp, [...]" do, and push, call and "sub rsp, n" don't.
func (i Inst) givesBack(code []byte) bool {
	if i.Encoding != Legacy || i.Map != 0 {
		return false
	}
	switch {
	case i.Opcode&^7 == 0x58, i.Opcode == 0xc9, i.Opcode == 0x8d:
		return true
	case i.Opcode|2 == 0x83:
		n, _ := i.Signed(code)
		return i.ModRM>>3&7 == 0 && n > 0 || i.ModRM>>3&7 == 5 && n < 0
	}
	return false
}
