package insn

import "kprobe/probe/insn/internal/opcode"

// vexMaps, evexMaps and xopMaps give the tables by map number.
var (
	vexMaps  = [32]*opcode.Map{1: &opcode.VEX1, 2: &opcode.VEX2, 3: &opcode.VEX3, 7: &opcode.VEX7}
	evexMaps = [8]*opcode.Map{1: &opcode.EVEX1, 2: &opcode.EVEX2, 3: &opcode.EVEX3, 5: &opcode.EVEX5, 6: &opcode.EVEX6}
	xopMaps  = [32]*opcode.Map{8: &opcode.XOP8, 9: &opcode.XOP9, 10: &opcode.XOPA}
)

// pps gives the mandatory prefix of the field pp.
var pps = [4]opcode.Attr{opcode.PPNone, opcode.PP66, opcode.PPF3, opcode.PPF2}

// vector reads VEX, EVEX or XOP and the opcode behind it. first is C4, C5, 62
// or 8F. 66, F2, F3, LOCK and REX before it make it undefined.
func (d *decoder) vector(first byte) (row, pp opcode.Attr, err error) {
	size := 3
	switch first {
	case 0xc5:
		size = 2
	case 0x62:
		size = 4
	}
	if d.pos+size >= len(d.code) {
		return 0, 0, ErrTruncated
	}
	p := d.code[d.pos:]
	d.OpcodeOff = uint8(d.pos + size)
	d.Opcode = p[size]
	clash := d.Prefixes & (PrefixOpSize | PrefixRep | PrefixRepne | PrefixLock | PrefixREX)
	last := p[size-1] // holds pp
	switch first {
	case 0xc5:
		d.Encoding, d.Map = VEX, 1
		d.REX = ^p[1] >> 5 & REXR
		d.Vvvv = ^p[1] >> 3 & 15
		row = opcode.VEX1.At(d.Opcode)
	case 0xc4, 0x8f:
		maps := &vexMaps
		d.Encoding = VEX
		if first == 0x8f {
			d.Encoding, maps = XOP, &xopMaps
		}
		d.Map = p[1] & 31
		d.REX = ^p[1]>>5&7 | p[2]>>4&REXW
		d.Vvvv = ^p[2] >> 3 & 15
		if m := maps[d.Map]; m != nil {
			row = m.At(d.Opcode)
		}
	case 0x62:
		d.Encoding, d.Map = EVEX, p[1]&7
		if d.Map == 4 || p[1]&8 != 0 || p[2]&4 == 0 {
			return 0, 0, ErrReserved
		}
		d.REX = ^p[1]>>5&7 | p[2]>>4&REXW
		d.Vvvv = ^p[2] >> 3 & 15
		last = p[2]
		if m := evexMaps[d.Map]; m != nil {
			row = m.At(d.Opcode)
		}
	}
	d.pos += size + 1
	if row != 0 && clash == 0 {
		return row, pps[last&3], nil
	}
	// The length is as good as known: all but vzeroupper have ModRM, map 3 and
	// XOP map 8 an immediate byte.
	if err := d.modrm(); err != nil {
		return 0, 0, err
	}
	if d.Map == 3 || d.Map == 8 {
		if err := d.immediate(opcode.ImmB); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, ErrUndefined
}
