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
	ExitPushed                   // a return to an address that the function has put on the stack: a jump
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
	case ExitPushed:
		return "return to a pushed address"
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
	// Sure is false for an indirect jump that may be a switch of the function.
	Sure bool
}

// Exits lists, in order of address, every instruction by which the function is left. An indirect jump is one unless it
// is proved to stay in the function (stays). The jump of a switch is in the list for each place in other parts of the
// function that its table leads to. The last instruction may be in the list twice.
func (f *Function) Exits() []Exit {
	var out []Exit
	for k, fl := range f.flags {
		if !fl.Any(Stops | RelBranch | Call) {
			continue
		}
		if e, ok := f.exit(k, fl); ok {
			out = append(out, e)
		} else if fl.Has(IndirectJmp) {
			out = f.appendOutside(out, k)
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

// Onward reports whether a call that is left that way returns from other code.
func (k ExitKind) Onward() bool { return k != ExitRet && k.Returns() }

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
		if _, e.Outer = f.setsStack(k); !e.Outer && f.pushed(k) {
			e.Kind, e.Indirect = ExitPushed, true
		}
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

// appendOutside appends an exit for each place outside the code that the table of the k-th instruction leads to.
func (f *Function) appendOutside(out []Exit, k int) []Exit {
	t := f.tableOf(k)
	if t == nil {
		return out
	}
	for _, to := range t.Outside {
		out = append(out, Exit{Kind: ExitTail, Addr: t.Jump, To: to, Switch: true, Sure: true})
	}
	return out
}

// onlyPadding reports whether no-ops and int3 are all that follows.
func (f *Function) onlyPadding(k int) bool {
	for ; k < len(f.flags); k++ {
		if !fills(f.flags[k], f.code[f.starts[k]]) {
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
		if err != nil || !fills(p.Flags, code[0]) {
			return false
		}
		code = code[p.Len:]
	}
	return true
}

// fills reports whether an instruction may be padding. An endbr64 is none: indirect branches lead to it.
func fills(flags Flags, first byte) bool { return flags.Has(Nop) && !flags.Has(CET) || first == 0xcc }

// indirectExit judges an indirect jump.
func (f *Function) indirectExit(k int, e Exit) (Exit, bool) {
	i, code := f.inst(k)
	switch {
	case i.Flags.Has(RIPRel):
		return e, true // through a pointer such as the global offset table's
	case f.leavesFrames(k, i):
		e.Kind = ExitOuter
		return e, true
	case f.tableOf(k) != nil || f.stays(k, i):
		return e, false
	}
	_, index, _, _, memory := i.Mem(code)
	_, table := f.lookup(k, i)
	byTable := table || memory && index != NoReg
	e.Sure = f.afterEpilogue(k) && (!byTable || f.unframed(k))
	return e, true
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

// afterEpilogue reports whether the stack was given back just before.
func (f *Function) afterEpilogue(k int) bool {
	for n := k - 1; n >= 0 && n >= k-6; n-- {
		if f.flags[n].Any(Stops | Call) {
			return false
		}
		if f.flags[n].Has(WritesSP) {
			return true
		}
	}
	return false
}
