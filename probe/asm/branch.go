package asm

// Cond is the condition of a jump, a set or a conditional move.
type Cond uint8

// The conditions, as the opcode map counts them.
const (
	O  Cond = iota // overflow
	NO             // no overflow
	B              // unsigned below; carry
	AE             // unsigned above or equal; no carry
	E              // equal; zero
	NE             // not equal; not zero
	BE             // unsigned below or equal
	A              // unsigned above
	S              // sign
	NS             // no sign
	P              // parity even
	NP             // parity odd
	L              // signed less
	GE             // signed greater or equal
	LE             // signed less or equal
	G              // signed greater
)

// Not is the opposite condition.
func (k Cond) Not() Cond { return k ^ 1 }

// back reports whether a label is bound and near enough for a two-byte branch
// from here.
func (c *Code) back(l Label) bool {
	off, ok := c.Offset(l)
	return ok && len(c.buf)+2-off <= 128
}

// Jmp jumps to a label: rel8 if that is bound and near, or known to be by Again,
// else rel32.
func (c *Code) Jmp(l Label) {
	if c.back(l) {
		c.JmpShort(l)
		return
	}
	if _, bound := c.Offset(l); !bound {
		c.forwards(l, 0xeb, 0xe9)
		return
	}
	c.Raw(0xe9)
	c.ref(l, 4, 0)
}

// JmpShort jumps to a label by rel8; ErrRange if that doesn't reach.
func (c *Code) JmpShort(l Label) {
	c.Raw(0xeb)
	c.ref(l, 1, 0)
}

// Jcc jumps to a label if the condition holds: rel8 if that is bound and near, or
// known to be by Again, else rel32.
func (c *Code) Jcc(k Cond, l Label) {
	if c.back(l) {
		c.JccShort(k, l)
		return
	}
	if _, bound := c.Offset(l); !bound {
		c.forwards(l, 0x70|byte(k&15), 0x0f, 0x80|byte(k&15))
		return
	}
	c.Raw(0x0f, 0x80|byte(k&15))
	c.ref(l, 4, 0)
}

// JccShort jumps to a label by rel8 if the condition holds; ErrRange if that
// doesn't reach.
func (c *Code) JccShort(k Cond, l Label) {
	c.Raw(0x70 | byte(k&15))
	c.ref(l, 1, 0)
}

// JmpAddr jumps to an address by rel32.
func (c *Code) JmpAddr(addr uint64) {
	c.Raw(0xe9)
	c.rel32To(addr, 0)
}

// CallAddr calls an address by rel32.
func (c *Code) CallAddr(addr uint64) {
	c.Raw(0xe8)
	c.rel32To(addr, 0)
}

// JmpReg is jmp r. Under indirect branch tracking the target must be an
// endbr64; JmpRegNoTrack is exempt.
func (c *Code) JmpReg(r Reg) { c.direct(op1(W32, 0xff), 4, r) }

// JmpRegNoTrack is notrack jmp r.
func (c *Code) JmpRegNoTrack(r Reg) {
	c.Raw(0x3e)
	c.JmpReg(r)
}

// JmpMem is jmp qword [m].
func (c *Code) JmpMem(m Mem) { c.memory(op1(W32, 0xff), 4, m, 0) }

// Call calls a label by rel32.
func (c *Code) Call(l Label) {
	c.Raw(0xe8)
	c.ref(l, 4, 0)
}

// CallReg is call r.
func (c *Code) CallReg(r Reg) { c.direct(op1(W32, 0xff), 2, r) }

// CallMem is call qword [m].
func (c *Code) CallMem(m Mem) { c.memory(op1(W32, 0xff), 2, m, 0) }

// Ret is ret.
func (c *Code) Ret() { c.Raw(0xc3) }

// RetPop is ret n: it takes n bytes off the stack besides the return address.
func (c *Code) RetPop(n uint16) { c.Raw(0xc2, byte(n), byte(n>>8)) }

// Set makes the low byte of r 1 if the condition holds, else 0; the rest of r
// stays.
func (c *Code) Set(k Cond, r Reg) {
	f := op2(W8, 0x90|byte(k&15))
	f.rex8rm = true
	c.direct(f, 0, r)
}

// Cmov is cmov dst, src: W32 zeroes the upper half of dst even where the
// condition doesn't hold.
func (c *Code) Cmov(k Cond, w Width, dst, src Reg) {
	if w == W8 {
		c.fail(ErrForm)
		return
	}
	c.direct(op2(w, 0x40|byte(k&15)), dst, src)
}
