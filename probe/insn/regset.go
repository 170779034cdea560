package insn

import (
	"math/bits"
	"strings"

	"kprobe/probe/insn/internal/opcode"
)

// Reg is a general register by its number in the encoding: 0 is rax.
type Reg uint8

// General registers.
const (
	RAX Reg = iota
	RCX
	RDX
	RBX
	RSP
	RBP
	RSI
	RDI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	// NoReg is no register.
	NoReg Reg = 0xff
)

const regNames = "rax rcx rdx rbx rsp rbp rsi rdi r8  r9  r10 r11 r12 r13 r14 r15 "

// String gives the 64-bit name, "none" for a number that is no register.
func (r Reg) String() string {
	if r > R15 {
		return "none"
	}
	return strings.TrimRight(regNames[int(r)*4:int(r)*4+3], " ")
}

// RegSet is a set of general registers; the zero RegSet is empty.
type RegSet uint16

// Set returns the set of the given registers.
func Set(regs ...Reg) RegSet {
	var s RegSet
	for _, r := range regs {
		s |= 1 << r
	}
	return s
}

// Has reports whether the register is in the set.
func (s RegSet) Has(r Reg) bool { return r <= R15 && s>>r&1 != 0 }

// Len is the number of registers in the set.
func (s RegSet) Len() int { return bits.OnesCount16(uint16(s)) }

// String lists the names, separated by commas.
func (s RegSet) String() string {
	var names []string
	for r := RAX; r <= R15; r++ {
		if s.Has(r) {
			names = append(names, r.String())
		}
	}
	return strings.Join(names, ",")
}

// RegsRead returns the general registers whose value the instruction uses, including the
// implicit ones and those of addresses. It may have too many, and never omits one. For a system
// call it has only what the instruction itself reads.
func (i Inst) RegsRead() RegSet {
	if i.attr.Class() == opcode.NopOp && i.Flags&Nop != 0 && i.ModRMOff == 0 {
		return 0
	}
	return RegSet(i.attr.ImplicitRead()) | i.addrRegs() |
		i.operands(opcode.ERead, opcode.GRead, opcode.VRead, opcode.ORead)
}

// RegsWritten returns the general registers that the instruction changes, or
// may: a conditional move's destination counts.
func (i Inst) RegsWritten() RegSet {
	if i.attr.Class() == opcode.NopOp && i.Flags&Nop != 0 && i.ModRMOff == 0 {
		return 0
	}
	s := RegSet(i.attr.ImplicitWrite()) |
		i.operands(opcode.EWrite, opcode.GWrite, opcode.VWrite, opcode.OWrite)
	if i.attr.Class() == opcode.Syscall {
		s |= Set(R11)
	}
	return s
}

// Regs returns RegsRead and RegsWritten together.
func (i Inst) Regs() RegSet { return i.RegsRead() | i.RegsWritten() }

func (i Inst) operands(e, g, v, o opcode.Attr) RegSet {
	var s RegSet
	a := i.attr
	if a&e != 0 && a&opcode.EGPR != 0 && i.ModRMOff != 0 && i.registerForm() {
		s |= 1 << i.byteReg(i.rm(), a&opcode.EByte)
	}
	if a&g != 0 && i.ModRMOff != 0 {
		s |= 1 << i.byteReg(i.RegField(), a&opcode.GByte)
	}
	if a&v != 0 {
		s |= 1 << (i.Vvvv & 15)
	}
	if a&o != 0 {
		s |= 1 << i.byteReg(Reg(i.Opcode&7|i.REX&REXB<<3), a&opcode.OByte)
	}
	return s
}

func (i Inst) registerForm() bool { return i.mod() == 3 || i.attr&opcode.RegOnly != 0 }

// byteReg turns ah, ch, dh and bh into the registers they are part of.
func (i Inst) byteReg(r Reg, isByte opcode.Attr) Reg {
	if isByte != 0 && i.Prefixes&PrefixREX == 0 && i.Encoding == Legacy && r >= RSP && r <= RDI {
		return r - 4
	}
	return r & 15
}

// addrRegs returns the registers of the memory operand's address. The index of a gather or
// scatter is a vector register, and appears as the general register of its number.
func (i Inst) addrRegs() RegSet {
	if i.ModRMOff == 0 || i.registerForm() || i.Flags&RIPRel != 0 {
		return 0
	}
	if i.SIBOff == 0 {
		return 1 << i.rm()
	}
	var s RegSet
	if base := i.SIB & 7; base != 5 || i.mod() != 0 {
		s |= 1 << (base | i.REX&REXB<<3)
	}
	if index := i.SIB>>3&7 | i.REX&REXX<<2; index != 4 {
		s |= 1 << index
	}
	return s
}

// RegOperand returns the register that stands where a memory operand could. ok is false
// if none does.
func (i Inst) RegOperand() (r Reg, ok bool) {
	if i.ModRMOff == 0 || !i.registerForm() {
		return NoReg, false
	}
	return i.rm(), true
}

// Mem returns the parts of a memory operand's address: base and index (NoReg
// where there is none), the factor of the index, and the displacement as it is
// in the bytes. ok is false if there is no memory operand; one that is
// RIP-relative has neither base nor index.
func (i Inst) Mem(code []byte) (base, index Reg, scale uint8, disp int64, ok bool) {
	base, index, scale = NoReg, NoReg, 1
	if i.ModRMOff == 0 || i.registerForm() {
		return base, index, scale, 0, false
	}
	disp, _ = i.Disp(code)
	if i.Flags&RIPRel != 0 {
		return base, index, scale, disp, true
	}
	if i.SIBOff == 0 {
		return i.rm(), index, scale, disp, true
	}
	if b := i.SIB & 7; b != 5 || i.mod() != 0 {
		base = Reg(b | i.REX&REXB<<3)
	}
	if x := i.SIB>>3&7 | i.REX&REXX<<2; x != 4 {
		index, scale = Reg(x), 1<<(i.SIB>>6)
	}
	return base, index, scale, disp, true
}
