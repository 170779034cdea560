package insn

import "kprobe/probe/insn/internal/opcode"

// Uses returns the general registers whose values matter to the instruction: RegsRead, except
// for xor and sub of a register with itself. For a system call it has only what the instruction
// itself reads.
func (i Inst) Uses() RegSet {
	if i.clears() {
		return 0
	}
	return i.RegsRead()
}

// ReadsFlags reports whether the instruction depends on a status flag. It may be wrong in one
// direction: it may return true for an instruction that doesn't.
func (i Inst) ReadsFlags() bool { return i.attr&opcode.FRead != 0 }

// clears reports whether the instruction is xor or sub of a whole register with
// itself.
func (i Inst) clears() bool {
	switch i.Opcode {
	case 0x31, 0x33, 0x29, 0x2b:
		return i.Encoding == Legacy && i.Map == 0 && i.whole() && i.mod() == 3 && i.rm() == i.RegField()
	}
	return false
}

// whole reports whether operands that are general registers have 32 or 64 bits:
// all of the register is written.
func (i Inst) whole() bool { return i.Prefixes&PrefixOpSize == 0 || i.REX&REXW != 0 }

// Overwrites returns the general registers of which the instruction leaves nothing, whatever
// they held: all that later code sees of them is new. It may omit some, and never has too many.
// Only common instructions are known.
func (i Inst) Overwrites() RegSet {
	g, e, o := Set(i.RegField()), RegSet(0), Set(Reg(i.Opcode&7|i.REX&REXB<<3))
	if i.ModRMOff != 0 && i.mod() == 3 {
		e = Set(i.rm())
	}
	switch {
	case i.Encoding == VEX && i.Map == 2 && (i.Opcode == 0xf2 || i.Opcode == 0xf5 || i.Opcode == 0xf7):
		return g // andn, bzhi, pdep, pext, bextr, shifts
	case i.Encoding == VEX && i.Map == 2 && i.Opcode == 0xf6:
		return g | Set(Reg(i.Vvvv&15)) // mulx
	case i.Encoding != Legacy:
		return 0
	case i.clears():
		return g
	case i.Map == 0 && i.whole():
		switch op := i.Opcode; {
		case op == 0x8b || op == 0x8d || op == 0x63 || op == 0x69 || op == 0x6b: // mov, lea, movsxd, imul
			return g
		case op == 0x89 || op == 0xc7 && i.ModRM>>3&7 == 0: // mov
			return e
		case op >= 0xb8 && op <= 0xbf || op >= 0x58 && op <= 0x5f: // mov, pop
			return o
		case op == 0x99: // cdq, cqo
			return Set(RDX)
		case op == 0xf7 && i.ModRM>>3&7 == 4: // mul
			return Set(RAX, RDX)
		}
	case i.Map == 1 && i.whole():
		switch op := i.Opcode; {
		case op == 0xb6 || op == 0xb7 || op == 0xbe || op == 0xbf: // movzx, movsx
			return g
		case op == 0xb8 && i.Prefixes&PrefixRep != 0: // popcnt
			return g
		case op == 0xa2: // cpuid
			return Set(RAX, RBX, RCX, RDX)
		case op == 0x31: // rdtsc
			return Set(RAX, RDX)
		}
	case i.Map == 1 && i.Opcode == 0xd7: // pmovmskb
		return g
	}
	if i.Map == 1 && i.Opcode == 0x7e && i.Prefixes&PrefixOpSize != 0 && i.Prefixes&(PrefixRep|PrefixRepne) == 0 {
		return e // movd, movq
	}
	return 0
}

// OverwritesFlags reports whether all status flags have new values after the instruction. It
// may return false for an instruction that does this.
func (i Inst) OverwritesFlags() bool {
	if i.Encoding != Legacy {
		return false
	}
	middle := i.ModRM >> 3 & 7
	switch op := i.Opcode; {
	case i.Map == 0 && op < 0x40 && op&7 < 6: // the eight operations; adc and sbb read carry
		return true
	case i.Map == 0 && op >= 0x80 && op <= 0x83 && op != 0x82:
		return true
	case i.Map == 0 && (op == 0x84 || op == 0x85 || op == 0xa8 || op == 0xa9): // test
		return true
	case i.Map == 0 && (op == 0xf6 || op == 0xf7) && (middle < 2 || middle == 3): // test, neg
		return true
	case i.Map == 1 && (op == 0xb0 || op == 0xb1 || op == 0xc0 || op == 0xc1): // cmpxchg, xadd
		return true
	case i.Map == 1 && (op == 0x2e || op == 0x2f): // ucomis, comis
		return true
	}
	return i.Map == 2 && i.Opcode == 0x17 // ptest
}
