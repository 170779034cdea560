package asm

// Mov is mov dst, src. With W32 the upper half of dst becomes zero; with W8
// and W16 the rest of dst stays.
func (c *Code) Mov(w Width, dst, src Reg) { c.direct(sized(w, 0x88), src, dst) }

// Load is mov dst, [m].
func (c *Code) Load(w Width, dst Reg, m Mem) { c.memory(sized(w, 0x8a), dst, m, 0) }

// Store is mov [m], src.
func (c *Code) Store(w Width, m Mem, src Reg) { c.memory(sized(w, 0x88), src, m, 0) }

// StoreImm is mov [m], imm; with W64 the 32 bits are sign-extended.
func (c *Code) StoreImm(w Width, m Mem, imm int32) {
	c.memory(extended(w, 0xc6), 0, m, immLen(w))
	c.imm(w, imm)
}

// MovImm makes dst the value by the shortest encoding (5, 7 or 10 bytes). No
// flag changes.
func (c *Code) MovImm(dst Reg, v uint64) {
	switch {
	case v == uint64(uint32(v)):
		c.short(W32, 0xb8, dst)
		c.Data32(uint32(v))
	case v == uint64(int64(int32(v))):
		c.direct(op1(W64, 0xc7), 0, dst)
		c.Data32(uint32(v))
	default:
		c.MovAbs(dst, v)
	}
}

// MovAbs is movabs dst, v: always 10 bytes, so that v may be changed later.
func (c *Code) MovAbs(dst Reg, v uint64) {
	c.short(W64, 0xb8, dst)
	c.Data64(v)
}

// LoadZX is movzx: dst becomes the value of w bytes, zero-extended to 64 bits.
// For W32 and W64 it is Load.
func (c *Code) LoadZX(w Width, dst Reg, m Mem) {
	switch w {
	case W8:
		c.memory(op2(W32, 0xb6), dst, m, 0)
	case W16:
		c.memory(op2(W32, 0xb7), dst, m, 0)
	default:
		c.Load(w, dst, m)
	}
}

// LoadSX is movsx or movsxd: dst becomes the value of w bytes, sign-extended
// to 64 bits.
func (c *Code) LoadSX(w Width, dst Reg, m Mem) {
	switch w {
	case W8:
		c.memory(op2(W64, 0xbe), dst, m, 0)
	case W16:
		c.memory(op2(W64, 0xbf), dst, m, 0)
	case W32:
		c.memory(op1(W64, 0x63), dst, m, 0)
	default:
		c.Load(w, dst, m)
	}
}

// MovZX is movzx dst, src: the low w bytes of src, zero-extended to 64 bits.
func (c *Code) MovZX(w Width, dst, src Reg) {
	switch w {
	case W8:
		f := op2(W32, 0xb6)
		f.rex8rm = true
		c.direct(f, dst, src)
	case W16:
		c.direct(op2(W32, 0xb7), dst, src)
	default:
		c.Mov(w, dst, src)
	}
}

// MovSX is movsx or movsxd dst, src: the low w bytes of src, sign-extended to
// 64 bits.
func (c *Code) MovSX(w Width, dst, src Reg) {
	switch w {
	case W8:
		f := op2(W64, 0xbe)
		f.rex8rm = true
		c.direct(f, dst, src)
	case W16:
		c.direct(op2(W64, 0xbf), dst, src)
	case W32:
		c.direct(op1(W64, 0x63), dst, src)
	default:
		c.Mov(w, dst, src)
	}
}

// Lea is lea dst, [m]. No flag changes, so it is how SP moves in a detour.
func (c *Code) Lea(dst Reg, m Mem) { c.memory(op1(W64, 0x8d), dst, m, 0) }

// Push is push r.
func (c *Code) Push(r Reg) { c.short(W32, 0x50, r) }

// Pop is pop r.
func (c *Code) Pop(r Reg) { c.short(W32, 0x58, r) }

// PushMem is push qword [m].
func (c *Code) PushMem(m Mem) { c.memory(op1(W32, 0xff), 6, m, 0) }

// PopMem is pop qword [m]; an operand with base SP counts from the SP after
// the pop.
func (c *Code) PopMem(m Mem) { c.memory(op1(W32, 0x8f), 0, m, 0) }

// PushImm is push imm, sign-extended to 64 bits.
func (c *Code) PushImm(v int32) {
	if v == int32(int8(v)) {
		c.Raw(0x6a, byte(v))
		return
	}
	c.Raw(0x68)
	c.Data32(uint32(v))
}

// Bswap reverses the bytes of r; w is W32 or W64.
func (c *Code) Bswap(w Width, r Reg) {
	if w != W32 && w != W64 {
		c.fail(ErrForm)
		return
	}
	var rex byte
	if w == W64 {
		rex = 8
	}
	if rex |= byte(r >> 3); rex != 0 {
		c.Raw(0x40 | rex)
	}
	c.Raw(0x0f, 0xc8|byte(r&7))
}

// MovSeg is mov dst, sreg: the selector, zero-extended. Numbers of segment
// registers are ES 0, CS 1, SS 2, DS 3, FS 4, GS 5.
func (c *Code) MovSeg(dst Reg, sreg uint8) {
	if sreg > 5 {
		c.fail(ErrForm)
		return
	}
	c.direct(op1(W32, 0x8c), Reg(sreg), dst)
}

// MovFromXMM is movq dst, xmmN (W64) or movd (W32): the only vector
// instructions there are here, and they only read.
func (c *Code) MovFromXMM(w Width, dst Reg, xmm uint8) {
	if xmm > 15 || w != W32 && w != W64 {
		c.fail(ErrForm)
		return
	}
	c.direct(op2(w, 0x7e).prefix(0x66), Reg(xmm), dst)
}

// short emits a one-byte opcode that carries its register.
func (c *Code) short(w Width, op byte, r Reg) {
	if r > R15 {
		c.fail(ErrForm)
		return
	}
	rex := byte(r >> 3)
	if w == W64 {
		rex |= 8
	}
	if rex != 0 {
		c.Raw(0x40 | rex)
	}
	c.Raw(op | byte(r&7))
}

func immLen(w Width) int {
	if w == W64 {
		return 4
	}
	return int(w)
}

func (c *Code) imm(w Width, v int32) {
	switch w {
	case W8:
		c.Raw(byte(v))
	case W16:
		c.Raw(byte(v), byte(v>>8))
	default:
		c.Data32(uint32(v))
	}
}
