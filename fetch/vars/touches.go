package vars

import (
	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

// look notes what the function's instructions do.
func (t *touchedFrame) look(f *frame) {
	size := uint64(0)
	for _, r := range f.fn.Ranges() {
		if size += r.High - r.Low; r.High < r.Low || size > maxTouching {
			t.unknown = true
			return
		}
		code, err := f.module.File.Text(symbols.Vaddr(r.Low), int(r.High-r.Low))
		if err != nil || uint64(len(code)) != r.High-r.Low {
			t.unknown = true
			return
		}
		for at := r.Low; len(code) > 0 && !t.unknown; {
			i, err := insn.Decode(code)
			if err != nil || i.Len == 0 {
				t.unknown = true
				return
			}
			t.instruction(f, i, code[:i.Len], at)
			code, at = code[i.Len:], at+uint64(i.Len)
		}
	}
}

// instruction notes what one does.
func (t *touchedFrame) instruction(f *frame, i insn.Inst, code []byte, at uint64) {
	if i.Is(insn.Nop) {
		return
	}
	if i.ModRMOff == 0 {
		t.implied(f, i, at)
		return
	}
	op, ok := operandOf(i, code)
	names := op.base == insn.RSP || op.base == insn.RBP || op.index == insn.RBP
	if !op.memory {
		_, copied := t.copies[op.base]
		names = names || copied || i.RegField() == insn.RSP || i.RegField() == insn.RBP
	}
	if !names {
		return
	}
	row, known := f.module.File.Unwind().At(at)
	if !known || row.CFA.Kind != unwind.InRegister {
		t.unknown = true // an aligned frame
		return
	}
	reg, _ := dwarfRegister(row.CFA.Reg)
	low := op.disp - row.CFA.Off
	switch {
	case !op.memory:
		t.registers(f, i, code, frameRegister{reg, row.CFA.Off, f.isGNU()}, at)
	case op.base == insn.RSP && reg != fetch.SP && f.isGNU(): // arguments of calls, and what has a size at run time
	case op.base == insn.RSP && reg != fetch.SP || !ok:
		t.unknown = true
	case op.base == insn.RBP && reg != fetch.BP && op.index != insn.RBP: // a pointer
	case op.index != insn.NoReg:
		if op.base == insn.RSP || reg == fetch.BP {
			t.indexed = true
			t.list = append(t.list, touch{span{low, low}, at, true})
		}
	case i.Is(insn.LEA) && i.RegField() == insn.RSP: // the frame is left
	case i.Is(insn.LEA):
		t.list = append(t.list, touch{span{low, low}, at, true})
	default:
		t.list = append(t.list, touch{span{low, low + accessSize(i)}, at, false})
	}
}

// implied notes what an instruction without ModRM does: it may push a register or a
// constant, or exchange a register with RAX.
func (t *touchedFrame) implied(f *frame, i insn.Inst, at uint64) {
	if i.Encoding != insn.Legacy || i.Map != 0 {
		return
	}
	push := i.Opcode >= 0x50 && i.Opcode <= 0x57 || i.Opcode == 0x68 || i.Opcode == 0x6a
	if !push && (i.Opcode < 0x90 || i.Opcode > 0x97) {
		return
	}
	row, known := f.module.File.Unwind().At(at)
	if !known || row.CFA.Kind != unwind.InRegister {
		t.unknown = true
		return
	}
	reg, _ := dwarfRegister(row.CFA.Reg)
	if r := insn.Reg(i.Opcode&7 | i.REX&insn.REXB<<3); i.Opcode != 0x68 && i.Opcode != 0x6a && (r == insn.RSP || r == insn.RBP && reg == fetch.BP) {
		t.unknown = true
	}
	if push && reg == fetch.SP {
		t.list = append(t.list, touch{span{-row.CFA.Off - 8, -row.CFA.Off}, at, false})
	}
}

// frameRegister is the register that the canonical frame address counts from at an
// instruction: it is off above.
type frameRegister struct {
	reg fetch.Reg
	off int64
	gnu bool
}

func (r frameRegister) is(g insn.Reg) bool {
	return g == insn.RSP && r.reg == fetch.SP || g == insn.RBP && r.reg == fetch.BP
}

// registers notes what an instruction does whose operands are registers.
func (t *touchedFrame) registers(f *frame, i insn.Inst, code []byte, r frameRegister, at uint64) {
	field, rm := i.RegField(), insn.Reg(i.ModRM&7|i.REX&insn.REXB<<3)
	legacy := i.Encoding == insn.Legacy
	switch {
	case legacy && i.Map == 0:
		t.general(f, i, code, field, rm, r, at)
	case i.Map == 1 && i.Opcode == 0x6e, // movq, pinsrq, vpbroadcastq to a register of vectors
		i.Map == 3 && i.Opcode == 0x22,
		i.Encoding == insn.EVEX && i.Map == 2 && i.Opcode == 0x7c:
		t.copied(rm, insn.NoReg, r, at)
	case legacy && i.Map == 1 && calculates(i.Opcode), !legacy && i.Map > 1 && i.Opcode >= 0xf0:
		t.unknown = t.unknown || r.is(field) || r.is(rm) || field == insn.RSP || rm == insn.RSP
	}
	// Others have registers of vectors, or bytes and words, which no address fits in.
}

// calculates reports an instruction of the second map that calculates with general
// registers: cmov, bt and others, shld, shrd, imul, cmpxchg, popcnt, bsf, bsr, xadd.
func calculates(opcode byte) bool {
	switch opcode {
	case 0xa3, 0xab, 0xb3, 0xbb, 0xba, 0xa4, 0xa5, 0xac, 0xad, 0xaf, 0xb1, 0xb8, 0xbc, 0xbd, 0xc1:
		return true
	}
	return opcode&0xf0 == 0x40
}

// general notes what an instruction of the first map does with general registers.
func (t *touchedFrame) general(f *frame, i insn.Inst, code []byte, field, rm insn.Reg, r frameRegister, at uint64) {
	switch op := i.Opcode; {
	case op == 0x89:
		t.moved(f, field, rm, r, at+uint64(i.Len), at)
	case op == 0x8b:
		t.moved(f, rm, field, r, at+uint64(i.Len), at)
	case op == 0x81 || op == 0x83: // with a constant; field says what
		t.constant(i, code, field&7, rm, r, at)
	case op == 0x80 || op >= 0xc0 && op <= 0xc6 || op == 0xd0 || op == 0xd2 || op == 0xf6 || op == 0xfe || op >= 0xd8 && op <= 0xdf: // bytes, x87
	case op == 0xc1 || op == 0xd1 || op == 0xd3 || op == 0xf7 || op == 0xff || op == 0xc7 || op == 0x8f: // one operand
		t.unknown = t.unknown || r.is(rm)
	case op < 0x40 && op&1 == 0, op == 0x84, op == 0x86, op == 0x88, op == 0x8a: // bytes
	case op&^3 == 0x38, op == 0x85: // cmp, test
	case op == 0x29 && rm == insn.RSP && !r.is(field), op == 0x2b && field == insn.RSP && !r.is(rm): // room of a size that is known at run time
	default:
		t.unknown = t.unknown || field == insn.RSP || rm == insn.RSP || r.is(field) || r.is(rm)
	}
}

// moved notes that a register is copied to another one, by the instruction ahead of next.
func (t *touchedFrame) moved(f *frame, from, to insn.Reg, r frameRegister, next, at uint64) {
	if from == insn.RBP && to == insn.RSP {
		return // the frame is left
	}
	if from == insn.RSP && to == insn.RBP {
		row, known := f.module.File.Unwind().At(next)
		if reg, _ := dwarfRegister(row.CFA.Reg); known && row.CFA.Kind == unwind.InRegister && reg == fetch.BP {
			return // a frame is made
		}
	}
	t.copied(from, to, r, at)
}

// copied notes that the frame's register is copied: somebody has the address that is in it.
func (t *touchedFrame) copied(from, to insn.Reg, r frameRegister, at uint64) {
	switch {
	case r.is(from):
		t.list = append(t.list, touch{span{-r.off, -r.off}, at, true})
		if to != insn.NoReg {
			t.copies[to] = -r.off
		}
	case from == insn.RSP && !r.gnu:
		t.unknown = true // how far it is from the frame's other register is not known
	}
}

// constant notes that a constant is added to a register, or another operation of the
// instructions 81 and 83. GCC for some processors adds to a copy of the frame's register
// rather than have LEA calculate.
func (t *touchedFrame) constant(i insn.Inst, code []byte, operation, rm insn.Reg, r frameRegister, at uint64) {
	const add, and, sub, cmp = 0, 4, 5, 7
	from, copied := t.copies[rm]
	switch {
	case operation == cmp:
	case rm == insn.RSP:
		t.unknown = t.unknown || operation != add && operation != sub // such as an alignment
	case r.is(rm), copied && operation != add && operation != sub:
		t.unknown = true
	case copied:
		by, ok := i.Signed(code)
		if operation == sub {
			by = -by
		}
		t.unknown = t.unknown || !ok
		t.list = append(t.list, touch{span{from + by, from + by}, at, true})
	}
}

// frameOperand is the operand of ModRM: in memory, at disp from a register, or the
// register base.
type frameOperand struct {
	memory      bool
	base, index insn.Reg
	disp        int64
}

// indexesByItself reports an instruction that accesses memory at a distance from its
// operand which no general index register has: bt and its kind take the number of a bit,
// gathers and scatters have many indices.
func indexesByItself(i insn.Inst) bool {
	if i.Encoding == insn.Legacy {
		return i.Map == 1 && (i.Opcode == 0xa3 || i.Opcode == 0xab || i.Opcode == 0xb3 || i.Opcode == 0xbb)
	}
	return i.Map == 2 && (i.Opcode&^3 == 0x90 || i.Opcode&^3 == 0xa0 || i.Opcode&^1 == 0xc6)
}

// operandOf reads the operand of ModRM; false where its displacement isn't known.
func operandOf(i insn.Inst, code []byte) (op frameOperand, ok bool) {
	op = frameOperand{base: insn.Reg(i.ModRM&7 | i.REX&insn.REXB<<3), index: insn.NoReg}
	if i.ModRM>>6 == 3 {
		return op, true
	}
	op.memory = true
	if i.Flags.Any(insn.RIPRel) || i.SIBOff != 0 && i.ModRM>>6 == 0 && i.SIB&7 == 5 {
		op.base = insn.NoReg
	} else if i.SIBOff != 0 {
		op.base = insn.Reg(i.SIB&7 | i.REX&insn.REXB<<3)
	}
	if i.SIBOff != 0 {
		if op.index = insn.Reg(i.SIB>>3&7 | i.REX&insn.REXX<<2); op.index == insn.RSP {
			op.index = insn.NoReg
		}
	}
	if indexesByItself(i) { // another register than it seems, or than none
		op.index = insn.RAX
	}
	if i.DispOff != 0 {
		op.disp, ok = i.Disp(code)
	} else {
		ok = true
	}
	return op, ok && (i.Encoding != insn.EVEX || i.DispLen != 1)
}
