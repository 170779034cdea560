package insn

// Faulting lists the points of a copy, which lies at the address at, where a fault is one that
// a program may be able to handle. memory are those whose instruction has a memory operand,
// division those that divide. Not listed are faults for lack of stack only, and kprobe's own:
// the other points, pushes and pops of registers, operands at the stack pointer without an
// index, and operands at a fixed distance from a segment's base.
func (m Moved) Faulting(at uint64) (memory, division []Point) {
	for _, p := range m.Points {
		if p.State != Main || int(p.Off) >= len(m.Code) {
			continue
		}
		code := m.Code[p.Off:]
		i, err := Decode(code)
		if err != nil {
			continue
		}
		if t, ok := i.RIPTarget(at+uint64(p.Off), code); ok && t >= at && t < at+uint64(len(m.Code)) {
			continue // a return address that is pushed
		}
		if i.mayFault(code) {
			memory = append(memory, p)
		}
		if i.divides() {
			division = append(division, p)
		}
	}
	return memory, division
}

// mayFault reports whether the instruction reads or writes memory that isn't
// simply the stack's.
func (i Inst) mayFault(code []byte) bool {
	if i.Flags&(MemRead|MemWrite) == 0 {
		return false
	}
	base, index, _, _, named := i.Mem(code)
	switch {
	case !named:
		frame := i.Encoding == Legacy && i.Map == 0 && (i.Opcode == 0xc8 || i.Opcode == 0xc9) // enter, leave
		return !frame && !i.Flags.Any(Push|Pop|Call|Ret)
	case i.Flags.Has(RIPRel), index != NoReg:
		return true
	case base == NoReg:
		return i.Prefixes&(PrefixFS|PrefixGS) == 0
	}
	return base != RSP
}

// divides reports whether the instruction is div or idiv.
func (i Inst) divides() bool {
	return i.Encoding == Legacy && i.Map == 0 && i.Opcode|1 == 0xf7 && i.ModRM>>4&3 == 3
}
