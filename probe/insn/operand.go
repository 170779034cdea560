package insn

import "kprobe/probe/insn/internal/opcode"

// modrm reads ModRM, SIB and the displacement.
func (d *decoder) modrm() error {
	m, ok := d.peek()
	if !ok {
		return ErrTruncated
	}
	d.ModRMOff, d.ModRM = uint8(d.pos), m
	d.pos++
	mod, rm := m>>6, m&7
	if mod == 3 || d.attr&opcode.RegOnly != 0 {
		return nil
	}
	size := uint8(0)
	switch mod {
	case 1:
		size = 1
	case 2:
		size = 4
	}
	if rm == 4 {
		s, ok := d.peek()
		if !ok {
			return ErrTruncated
		}
		d.SIBOff, d.SIB = uint8(d.pos), s
		d.pos++
		if mod == 0 && s&7 == 5 {
			size = 4
		}
	} else if mod == 0 && rm == 5 {
		size = 4
		d.Flags |= RIPRel
	}
	if size == 0 {
		return nil
	}
	d.DispOff, d.DispLen = uint8(d.pos), size
	d.pos += int(size)
	if d.pos > len(d.code) {
		return ErrTruncated
	}
	return nil
}

// immediate reads what follows the operands.
func (d *decoder) immediate(kind opcode.Imm) error {
	n := d.immLen(kind)
	if n == 0 {
		return nil
	}
	d.ImmOff, d.ImmLen = uint8(d.pos), n
	d.pos += int(n)
	if d.pos > len(d.code) {
		return ErrTruncated
	}
	return nil
}

func (d *decoder) immLen(kind opcode.Imm) uint8 {
	wide, half := d.REX&REXW != 0, d.Prefixes&PrefixOpSize != 0
	switch kind {
	case opcode.ImmB, opcode.RelB, opcode.ImmSuffix:
		return 1
	case opcode.ImmW, opcode.ImmBB:
		return 2
	case opcode.ImmWB:
		return 3
	case opcode.ImmD, opcode.RelZ:
		return 4
	case opcode.ImmZ:
		if half && !wide {
			return 2
		}
		return 4
	case opcode.ImmV:
		switch {
		case wide:
			return 8
		case half:
			return 2
		}
		return 4
	case opcode.ImmMoffs:
		if d.Prefixes&PrefixAddrSize != 0 {
			return 4
		}
		return 8
	case opcode.ImmEXTRQ:
		if d.Prefixes&PrefixRepne != 0 || half && d.Prefixes&PrefixRep == 0 {
			return 2
		}
	}
	return 0
}
