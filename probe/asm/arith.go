package asm

// Op is one of the eight two-operand arithmetic instructions.
type Op uint8

// The arithmetic instructions, as the opcode map counts them.
const (
	Add Op = iota
	Or
	Adc
	Sbb
	And
	Sub
	Xor
	Cmp
)

// Shift is a shift or rotate instruction.
type Shift uint8

// The shifts, as the opcode extension counts them.
const (
	Rol Shift = 0
	Ror Shift = 1
	Shl Shift = 4
	Shr Shift = 5
	Sar Shift = 7
)

// Op is op dst, src.
func (c *Code) Op(op Op, w Width, dst, src Reg) { c.direct(sized(w, byte(op)<<3), src, dst) }

// OpLoad is op dst, [m].
func (c *Code) OpLoad(op Op, w Width, dst Reg, m Mem) { c.memory(sized(w, byte(op)<<3|2), dst, m, 0) }

// OpStore is op [m], src.
func (c *Code) OpStore(op Op, w Width, m Mem, src Reg) { c.memory(sized(w, byte(op)<<3), src, m, 0) }

// OpImm is op dst, imm by the shortest encoding; with W64 the immediate is
// sign-extended.
func (c *Code) OpImm(op Op, w Width, dst Reg, v int32) {
	if w != W8 && v == int32(int8(v)) {
		c.direct(op1(w, 0x83), Reg(op), dst)
		c.Raw(byte(v))
		return
	}
	c.direct(extended(w, 0x80), Reg(op), dst)
	c.imm(w, v)
}

// OpMemImm is op [m], imm by the shortest encoding.
func (c *Code) OpMemImm(op Op, w Width, m Mem, v int32) {
	if w != W8 && v == int32(int8(v)) {
		c.memory(op1(w, 0x83), Reg(op), m, 1)
		c.Raw(byte(v))
		return
	}
	c.memory(extended(w, 0x80), Reg(op), m, immLen(w))
	c.imm(w, v)
}

// Test is test a, b.
func (c *Code) Test(w Width, a, b Reg) { c.direct(sized(w, 0x84), b, a) }

// TestImm is test a, imm.
func (c *Code) TestImm(w Width, a Reg, v int32) {
	c.direct(extended(w, 0xf6), 0, a)
	c.imm(w, v)
}

// TestMemImm is test [m], imm.
func (c *Code) TestMemImm(w Width, m Mem, v int32) {
	c.memory(extended(w, 0xf6), 0, m, immLen(w))
	c.imm(w, v)
}

// ShiftImm shifts r by n bits.
func (c *Code) ShiftImm(s Shift, w Width, r Reg, n uint8) {
	if n == 1 {
		c.direct(extended(w, 0xd0), Reg(s), r)
		return
	}
	c.direct(extended(w, 0xc0), Reg(s), r)
	c.Raw(n)
}

// ShiftCL shifts r by cl bits.
func (c *Code) ShiftCL(s Shift, w Width, r Reg) { c.direct(extended(w, 0xd2), Reg(s), r) }

// Neg is neg r.
func (c *Code) Neg(w Width, r Reg) { c.direct(extended(w, 0xf6), 3, r) }

// Not is not r; no flag changes.
func (c *Code) Not(w Width, r Reg) { c.direct(extended(w, 0xf6), 2, r) }

// Dec is dec r.
func (c *Code) Dec(w Width, r Reg) { c.direct(extended(w, 0xfe), 1, r) }

// IncMem is inc [m].
func (c *Code) IncMem(w Width, m Mem) { c.memory(extended(w, 0xfe), 0, m, 0) }

// DecMem is dec [m].
func (c *Code) DecMem(w Width, m Mem) { c.memory(extended(w, 0xfe), 1, m, 0) }

// MulMem is mul m: DX:AX becomes AX times m, without sign.
func (c *Code) MulMem(w Width, m Mem) { c.memory(extended(w, 0xf6), 4, m, 0) }

// Imul is imul dst, src.
func (c *Code) Imul(w Width, dst, src Reg) {
	if w == W8 {
		c.fail(ErrForm)
		return
	}
	c.direct(op2(w, 0xaf), dst, src)
}

// ImulImm is imul dst, src, imm.
func (c *Code) ImulImm(w Width, dst, src Reg, v int32) {
	if w != W32 && w != W64 {
		c.fail(ErrForm)
		return
	}
	if v == int32(int8(v)) {
		c.direct(op1(w, 0x6b), dst, src)
		c.Raw(byte(v))
		return
	}
	c.direct(op1(w, 0x69), dst, src)
	c.Data32(uint32(v))
}

// Bsf is bsf dst, src: the number of the lowest bit set.
func (c *Code) Bsf(w Width, dst, src Reg) { c.direct(op2(w, 0xbc), dst, src) }

// Bsr is bsr dst, src: the number of the highest bit set.
func (c *Code) Bsr(w Width, dst, src Reg) { c.direct(op2(w, 0xbd), dst, src) }

// BtImm puts bit n of r into the carry flag.
func (c *Code) BtImm(w Width, r Reg, n uint8) {
	c.direct(op2(w, 0xba), 4, r)
	c.Raw(n)
}

// BtMem puts the bit numbered by n, counted from [m] on and not limited to its
// width, into the carry flag.
func (c *Code) BtMem(w Width, m Mem, n Reg) { c.memory(op2(w, 0xa3), n, m, 0) }

// Bts sets bit n (a register, modulo the width) of r.
func (c *Code) Bts(w Width, r, n Reg) { c.direct(op2(w, 0xab), n, r) }

// BtsImm sets bit n of [m].
func (c *Code) BtsImm(w Width, m Mem, n uint8) {
	c.memory(op2(w, 0xba), 5, m, 1)
	c.Raw(n)
}
