// Package touches finds which parts of a function's frame its instructions access, or compute the address
// of. It reads code as bytes, and nothing else.
//
// The result may name parts that no instruction touches. It says when it may lack some: Unknown.
package touches

import "kprobe/probe/insn"

// Span is a part of the frame, from low to high, as distances from the canonical frame address.
type Span struct{ Low, High int64 }

// Touch is what an instruction does to the frame. It accesses a part, or computes an address
// through which others access it.
type Touch struct {
	Span
	PC    uint64
	Taken bool
	Bound bool // the taken address is only compared, such as the end of an array
}

// Touches is what a function's instructions do to its frame.
type Touches struct {
	List    []Touch
	Indexed bool // some instruction may touch any array
	Unknown bool // some instruction may touch anything
	// copies are the registers that hold an address copied from the frame's register, and that address.
	copies map[insn.Reg]int64
}

// Function is what must be known of a function besides its code.
type Function struct {
	// CFA returns from which register, and at which distance off, the canonical frame address counts
	// at an instruction. reg is insn.RSP, insn.RBP, or insn.NoReg for any other. ok is false if it
	// counts from no register, as in a frame that is aligned.
	CFA func(pc uint64) (reg insn.Reg, off int64, ok bool)
	// GNU says that GCC has made the code.
	GNU bool
}

// Look notes what the instructions of code do, which lies at an address of the function.
func (t *Touches) Look(f Function, code []byte, at uint64) {
	if t.copies == nil {
		t.copies = map[insn.Reg]int64{}
	}
	for len(code) > 0 && !t.Unknown {
		i, err := insn.Decode(code)
		if err != nil || i.Len == 0 {
			t.Unknown = true
			return
		}
		n := len(t.List)
		t.instruction(f, i, code[:i.Len], at)
		code, at = code[i.Len:], at+uint64(i.Len)
		if len(t.List) > n && i.Is(insn.LEA) {
			t.List[n].Bound = onlyCompared(i.RegField(), code)
		}
	}
}

// instruction notes what one instruction does.
func (t *Touches) instruction(f Function, i insn.Inst, code []byte, at uint64) {
	if i.Is(insn.Nop) {
		return
	}
	if i.ModRMOff == 0 {
		t.implied(f, i, at)
		return
	}
	op, ok := OperandOf(i, code)
	names := op.Base == insn.RSP || op.Base == insn.RBP || op.Index == insn.RBP
	if !op.Memory {
		_, copied := t.copies[op.Base]
		names = names || copied || i.RegField() == insn.RSP || i.RegField() == insn.RBP
	}
	if !names {
		return
	}
	reg, off, known := f.CFA(at)
	if !known {
		t.Unknown = true // an aligned frame
		return
	}
	low := op.Disp - off
	switch {
	case !op.Memory:
		t.registers(f, i, code, frameRegister{reg, off, f.GNU}, at)
	case op.Base == insn.RSP && reg != insn.RSP && f.GNU: // arguments of calls, and variables whose size is known only at run time
	case op.Base == insn.RSP && reg != insn.RSP || !ok:
		t.Unknown = true
	case op.Base == insn.RBP && reg != insn.RBP && op.Index != insn.RBP: // RBP is an ordinary pointer
	case op.Index != insn.NoReg:
		if op.Base == insn.RSP || reg == insn.RBP {
			t.Indexed = true
			t.List = append(t.List, Touch{Span: Span{low, low}, PC: at, Taken: true})
		}
	case i.Is(insn.LEA) && i.RegField() == insn.RSP: // the frame is left
	case i.Is(insn.LEA):
		t.List = append(t.List, Touch{Span: Span{low, low}, PC: at, Taken: true})
	default:
		t.List = append(t.List, Touch{Span: Span{low, low + accessSize(i, code)}, PC: at})
	}
}

// implied notes what an instruction without ModRM does. It may push a register or a constant,
// or exchange a register with RAX.
func (t *Touches) implied(f Function, i insn.Inst, at uint64) {
	if i.Encoding != insn.Legacy || i.Map != 0 {
		return
	}
	push := i.Opcode >= 0x50 && i.Opcode <= 0x57 || i.Opcode == 0x68 || i.Opcode == 0x6a
	if !push && (i.Opcode < 0x90 || i.Opcode > 0x97) {
		return
	}
	reg, off, known := f.CFA(at)
	if !known {
		t.Unknown = true
		return
	}
	if r := insn.Reg(i.Opcode&7 | i.REX&insn.REXB<<3); i.Opcode != 0x68 && i.Opcode != 0x6a && (r == insn.RSP || r == insn.RBP && reg == insn.RBP) {
		t.Unknown = true
	}
	if push && reg == insn.RSP {
		t.List = append(t.List, Touch{Span: Span{-off - 8, -off}, PC: at})
	}
}

// frameRegister is the register from which the canonical frame address counts at an
// instruction, and the distance off between them.
type frameRegister struct {
	reg insn.Reg
	off int64
	gnu bool
}

func (r frameRegister) is(g insn.Reg) bool {
	return g == r.reg && (g == insn.RSP || g == insn.RBP)
}

// registers notes what an instruction does whose operands are registers.
func (t *Touches) registers(f Function, i insn.Inst, code []byte, r frameRegister, at uint64) {
	field, rm := i.RegField(), insn.Reg(i.ModRM&7|i.REX&insn.REXB<<3)
	legacy := i.Encoding == insn.Legacy
	switch {
	case legacy && i.Map == 0:
		t.general(f, i, code, field, rm, r, at)
	case i.Map == 1 && i.Opcode == 0x6e, // movq, pinsrq, vpbroadcastq to a vector register
		i.Map == 3 && i.Opcode == 0x22,
		i.Encoding == insn.EVEX && i.Map == 2 && i.Opcode == 0x7c:
		t.copied(rm, insn.NoReg, r, at)
	case legacy && i.Map == 1 && calculates(i.Opcode), !legacy && i.Map > 1 && i.Opcode >= 0xf0:
		t.Unknown = t.Unknown || r.is(field) || r.is(rm) || field == insn.RSP || rm == insn.RSP
	}
	// Other instructions use vector registers, or bytes and words, which can't hold an address.
}

// calculates reports whether an instruction of the second map calculates with general
// registers: cmov, bt and its kind, shld, shrd, imul, cmpxchg, popcnt, bsf, bsr, xadd.
func calculates(opcode byte) bool {
	switch opcode {
	case 0xa3, 0xab, 0xb3, 0xbb, 0xba, 0xa4, 0xa5, 0xac, 0xad, 0xaf, 0xb1, 0xb8, 0xbc, 0xbd, 0xc1:
		return true
	}
	return opcode&0xf0 == 0x40
}

// general notes what an instruction of the first map does with general registers.
func (t *Touches) general(f Function, i insn.Inst, code []byte, field, rm insn.Reg, r frameRegister, at uint64) {
	switch op := i.Opcode; {
	case op == 0x89:
		t.moved(f, field, rm, r, at+uint64(i.Len), at)
	case op == 0x8b:
		t.moved(f, rm, field, r, at+uint64(i.Len), at)
	case op == 0x81 || op == 0x83: // with a constant; field is the operation
		t.constant(i, code, field&7, rm, r, at)
	case op == 0x80 || op >= 0xc0 && op <= 0xc6 || op == 0xd0 || op == 0xd2 || op == 0xf6 || op == 0xfe || op >= 0xd8 && op <= 0xdf: // bytes, x87
	case op == 0xc1 || op == 0xd1 || op == 0xd3 || op == 0xf7 || op == 0xff || op == 0xc7 || op == 0x8f: // one operand
		t.Unknown = t.Unknown || r.is(rm)
	case op < 0x40 && op&1 == 0, op == 0x84, op == 0x86, op == 0x88, op == 0x8a: // bytes
	case op&^3 == 0x38, op == 0x85: // cmp, test
	case op == 0x29 && rm == insn.RSP && !r.is(field), op == 0x2b && field == insn.RSP && !r.is(rm): // makes room of a size that is known only at run time
	default:
		t.Unknown = t.Unknown || field == insn.RSP || rm == insn.RSP || r.is(field) || r.is(rm)
	}
}

// moved notes that the instruction before next copies a register to another one.
func (t *Touches) moved(f Function, from, to insn.Reg, r frameRegister, next, at uint64) {
	if from == insn.RBP && to == insn.RSP {
		return // the frame is left
	}
	if from == insn.RSP && to == insn.RBP {
		if reg, _, ok := f.CFA(next); ok && reg == insn.RBP {
			return // a frame is made
		}
	}
	t.copied(from, to, r, at)
}

// copied notes that the frame's register is copied, so that the address in it is taken.
func (t *Touches) copied(from, to insn.Reg, r frameRegister, at uint64) {
	switch {
	case r.is(from):
		t.List = append(t.List, Touch{Span: Span{-r.off, -r.off}, PC: at, Taken: true})
		if to != insn.NoReg {
			t.copies[to] = -r.off
		}
	case from == insn.RSP && !r.gnu:
		t.Unknown = true // its distance from the frame's other register isn't known
	}
}

// constant notes that an instruction adds a constant to a register, or does another operation
// of the instructions 81 and 83. For some processors, GCC adds to a copy of the frame's
// register instead of using LEA.
func (t *Touches) constant(i insn.Inst, code []byte, operation, rm insn.Reg, r frameRegister, at uint64) {
	const add, and, sub, cmp = 0, 4, 5, 7
	from, copied := t.copies[rm]
	switch {
	case operation == cmp:
	case rm == insn.RSP:
		t.Unknown = t.Unknown || operation != add && operation != sub // such as an alignment
	case r.is(rm), copied && operation != add && operation != sub:
		t.Unknown = true
	case copied:
		by, ok := i.Signed(code)
		if operation == sub {
			by = -by
		}
		t.Unknown = t.Unknown || !ok
		t.List = append(t.List, Touch{Span: Span{from + by, from + by}, PC: at, Taken: true})
	}
}

// Operand is the operand in ModRM: memory at Disp from the register Base, or the register Base itself.
type Operand struct {
	Memory      bool
	Base, Index insn.Reg
	Disp        int64
}

// indexesByItself reports whether an instruction accesses memory at a distance from its
// operand that isn't in a general index register. bt and its kind use the number of a bit;
// gathers and scatters use many indices.
func indexesByItself(i insn.Inst) bool {
	if i.Encoding == insn.Legacy {
		return i.Map == 1 && (i.Opcode == 0xa3 || i.Opcode == 0xab || i.Opcode == 0xb3 || i.Opcode == 0xbb)
	}
	return i.Map == 2 && (i.Opcode&^3 == 0x90 || i.Opcode&^3 == 0xa0 || i.Opcode&^1 == 0xc6)
}

// OperandOf reads the operand in ModRM. It returns false if the displacement isn't known.
func OperandOf(i insn.Inst, code []byte) (op Operand, ok bool) {
	op = Operand{Base: insn.Reg(i.ModRM&7 | i.REX&insn.REXB<<3), Index: insn.NoReg}
	if i.ModRM>>6 == 3 {
		return op, true
	}
	op.Memory = true
	if i.Flags.Any(insn.RIPRel) || i.SIBOff != 0 && i.ModRM>>6 == 0 && i.SIB&7 == 5 {
		op.Base = insn.NoReg
	} else if i.SIBOff != 0 {
		op.Base = insn.Reg(i.SIB&7 | i.REX&insn.REXB<<3)
	}
	if i.SIBOff != 0 {
		if op.Index = insn.Reg(i.SIB>>3&7 | i.REX&insn.REXX<<2); op.Index == insn.RSP {
			op.Index = insn.NoReg
		}
	}
	if indexesByItself(i) { // the index isn't what the operand says
		op.Index = insn.RAX
	}
	if i.DispOff != 0 {
		op.Disp, ok = i.Disp(code)
	} else {
		ok = true
	}
	return op, ok && (i.Encoding != insn.EVEX || i.DispLen != 1)
}
