package touches

import "kprobe/probe/insn"

// maxCompared limits how many instructions a register is followed through.
const maxCompared = 256

// onlyCompared reports whether code only compares a register's value, until the register gets
// another value or the code ends.
func onlyCompared(reg insn.Reg, code []byte) bool {
	compared := false
	for range maxCompared {
		if len(code) == 0 {
			return compared
		}
		i, err := insn.Decode(code)
		if err != nil || i.Len == 0 {
			return false
		}
		text := code[:i.Len]
		code = code[i.Len:]
		switch {
		case i.Is(insn.Nop) || !mentions(i, text, reg):
		case i.Encoding == insn.Legacy && i.Map == 0 && (i.Opcode == 0x39 || i.Opcode == 0x3b) && !addressedBy(i, text, reg):
			compared = true
		default:
			return compared && replaces(i, text, reg)
		}
	}
	return false
}

// mentions reports whether an instruction may read or write a register. A vector register
// counts as the general register of the same number.
func mentions(i insn.Inst, code []byte, reg insn.Reg) bool {
	if i.ModRMOff != 0 {
		op, ok := OperandOf(i, code)
		return !ok || i.RegField() == reg || op.Base == reg || op.Index == reg || i.Encoding != insn.Legacy
	}
	if i.Encoding == insn.Legacy && i.Map == 1 && i.Opcode&0xf0 == 0x80 { // a jump
		return false
	}
	if i.Encoding != insn.Legacy || i.Map != 0 {
		return true
	}
	named := insn.Reg(i.Opcode&7 | i.REX&insn.REXB<<3)
	kept := reg == insn.RBX || reg == insn.RBP || reg >= insn.R12
	switch op := i.Opcode; {
	case op >= 0x50 && op < 0x60, op >= 0x90 && op < 0x98, op >= 0xb0 && op < 0xc0:
		return named == reg
	case op >= 0x70 && op < 0x80, op == 0xeb, op == 0xe9, op == 0xc2, op == 0xc3:
		return false
	}
	return !kept // calls, and instructions that read registers without naming them
}

// addressedBy reports whether an instruction has an operand in memory whose address uses the
// register.
func addressedBy(i insn.Inst, code []byte, reg insn.Reg) bool {
	op, ok := OperandOf(i, code)
	return !ok || op.Memory && (op.Base == reg || op.Index == reg)
}

// replaces reports whether an instruction gives a register a value that doesn't depend on the
// old one: a move to it, LEA, or POP.
func replaces(i insn.Inst, code []byte, reg insn.Reg) bool {
	if i.Encoding != insn.Legacy || i.Map != 0 {
		return false
	}
	if i.ModRMOff == 0 {
		return (i.Opcode >= 0x58 && i.Opcode < 0x60 || i.Opcode >= 0xb8 && i.Opcode < 0xc0) && insn.Reg(i.Opcode&7|i.REX&insn.REXB<<3) == reg
	}
	op, ok := OperandOf(i, code)
	switch {
	case !ok:
		return false
	case i.Opcode == 0x8b || i.Is(insn.LEA):
		return i.RegField() == reg && op.Base != reg && op.Index != reg
	case i.Opcode == 0x89 || i.Opcode == 0xc7:
		return !op.Memory && op.Base == reg && i.RegField() != reg
	}
	return false
}
