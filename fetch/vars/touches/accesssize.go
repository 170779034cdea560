package touches

import "kprobe/probe/insn"

// accessSize returns how many bytes an instruction accesses in memory. The result may be too
// large, but never too small. code has the bytes of the instruction.
func accessSize(i insn.Inst, code []byte) int64 {
	if i.Encoding == insn.VEX {
		return vexSize(i, code)
	}
	return legacySize(i)
}

// vexSize is accessSize for instructions with a VEX prefix. The prefix's last byte says how
// long the vectors are, and which legacy prefix the instruction would have without VEX.
func vexSize(i insn.Inst, code []byte) int64 {
	last := int(i.OpcodeOff) - 1
	if last < 0 || last >= len(code) || i.Map > 3 {
		return 64
	}
	size := int64(16)
	if code[last]&4 != 0 {
		size = 32
	}
	if i.Map > 1 {
		return size
	}
	i.Prefixes |= [...]insn.Prefixes{0, insn.PrefixOpSize, insn.PrefixRep, insn.PrefixRepne}[code[last]&3]
	if n := secondMapSize(i, 8); n < 16 {
		return n
	}
	return size
}

// legacySize is accessSize for instructions without a VEX prefix.
func legacySize(i insn.Inst) int64 {
	const (
		atMost = 64
		states = 1 << 14 // of the processor: fxsave, xsave, fnsave
	)
	general := int64(4)
	switch {
	case i.REX&insn.REXW != 0:
		general = 8
	case i.Prefixes&insn.PrefixOpSize != 0:
		general = 2
	}
	switch {
	case savesState(i):
		return states
	case i.Encoding != insn.Legacy || i.Map > 1 || i.Is(insn.RepString):
		return atMost
	case i.Map == 1:
		return secondMapSize(i, general)
	case i.Opcode < 0x40:
		if i.Opcode&1 == 0 {
			return 1
		}
		return general
	}
	switch i.Opcode {
	case 0x80, 0x84, 0x86, 0x88, 0x8a, 0xc0, 0xc6, 0xd0, 0xd2, 0xf6, 0xfe:
		return 1
	case 0x63:
		return 4
	case 0x69, 0x6b, 0x81, 0x83, 0x85, 0x87, 0x89, 0x8b, 0xc1, 0xc7, 0xd1, 0xd3, 0xf7:
		return general
	case 0xff, 0x8f:
		if i.Prefixes&insn.PrefixOpSize == 0 { // calls, jumps and pushes have 8
			return 8
		}
		return general
	case 0xd8, 0xda:
		return 4
	case 0xd9:
		if i.ModRM>>3&7 <= 3 {
			return 4
		}
		return 28
	case 0xdb:
		if i.ModRM>>3&7 >= 5 {
			return 10
		}
		return 4
	case 0xdc:
		return 8
	case 0xdd:
		if i.ModRM>>3&7 <= 3 {
			return 8
		}
	case 0xde:
		return 2
	case 0xdf:
		switch i.ModRM >> 3 & 7 {
		case 4, 6:
			return 10
		case 5, 7:
			return 8
		}
		return 2
	}
	return atMost
}

// savesState reports whether an instruction is fxsave, xsave or fnsave, or restores what one
// of these saved.
func savesState(i insn.Inst) bool {
	field := i.ModRM >> 3 & 7
	switch {
	case i.Encoding != insn.Legacy:
		return false
	case i.Map == 0:
		return i.Opcode == 0xdd && field >= 4
	case i.Map == 1 && i.Opcode == 0xae:
		return field != 2 && field != 3 // ldmxcsr, stmxcsr
	}
	return i.Map == 1 && i.Opcode == 0xc7 && field >= 3
}

// secondMapSize is accessSize for instructions that begin with 0F.
func secondMapSize(i insn.Inst, general int64) int64 {
	single, double := i.Prefixes&insn.PrefixRep != 0, i.Prefixes&insn.PrefixRepne != 0
	switch op := i.Opcode; {
	case op >= 0x90 && op <= 0x9f, op == 0xb6, op == 0xbe, op == 0xb0, op == 0xc0: // setcc, movzx and movsx of bytes
		return 1
	case op == 0xb7, op == 0xbf:
		return 2
	case op >= 0x40 && op <= 0x4f, op == 0xaf, op == 0xb1, op == 0xc1, op == 0xbc, op == 0xbd, op == 0xa3, op == 0xab, op == 0xba:
		return general
	case op == 0x10, op == 0x11, op == 0x51, op >= 0x58 && op <= 0x5f:
		switch {
		case single:
			return 4
		case double:
			return 8
		}
		return 16
	case op == 0x2a && (single || double), op == 0x6e, op == 0x7e && !single:
		return max(general, 4)
	case op == 0x2c, op == 0x2d, op == 0x2e, op == 0x2f:
		if single || op >= 0x2e && i.Prefixes&insn.PrefixOpSize == 0 {
			return 4
		}
		return 8
	case op == 0x12, op == 0x13, op == 0x16, op == 0x17, op == 0xd6, op == 0x7e:
		return 8
	case op == 0x14, op == 0x15, op == 0x28, op == 0x29, op == 0x2b, op >= 0x54 && op <= 0x57, op == 0xc6,
		op >= 0x60 && op <= 0x70, op >= 0x74 && op <= 0x76, op == 0x7c, op == 0x7d, op == 0x7f, op >= 0xd0 && op != 0xff:
		return 16
	}
	return 64
}
