package asm

import "fmt"

// Reg is a general register, numbered as the instruction encoding does.
type Reg uint8

// The general registers. NoReg stands where an operand has none.
const (
	AX Reg = iota
	CX
	DX
	BX
	SP
	BP
	SI
	DI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	NoReg Reg = 0xff
)

// Width is the size of an operand in bytes.
type Width uint8

// The operand sizes.
const (
	W8  Width = 1
	W16 Width = 2
	W32 Width = 4
	W64 Width = 8
)

// Seg is a segment override.
type Seg uint8

// The segments that an operand may name.
const (
	DS Seg = 0    // none
	FS Seg = 0x64 // thread control block of most C libraries
	GS Seg = 0x65
)

type memKind uint8

const (
	memBase memKind = iota
	memAbs
	memLabel
	memAddr
)

// Mem is a memory operand. Make it with At, Indexed, Abs, SegAbs, Rel or
// RelAddr; the zero Mem is [rax].
type Mem struct {
	kind  memKind
	seg   Seg
	base  Reg
	index Reg
	scale uint8
	disp  int32
	label Label
	addr  uint64
}

// At is [base+disp].
func At(base Reg, disp int32) Mem { return Mem{base: base, index: NoReg, scale: 1, disp: disp} }

// Indexed is [base+index*scale+disp]; index isn't SP, scale is 1, 2, 4 or 8.
// With base NoReg it is [index*scale+disp].
func Indexed(base, index Reg, scale uint8, disp int32) Mem {
	return Mem{base: base, index: index, scale: scale, disp: disp}
}

// Abs is [disp], an address in the lowest or highest 2 GiB.
func Abs(disp int32) Mem { return Mem{kind: memAbs, disp: disp} }

// SegAbs is seg:[disp].
func SegAbs(seg Seg, disp int32) Mem { return Mem{kind: memAbs, seg: seg, disp: disp} }

// In is m within a segment.
func (m Mem) In(seg Seg) Mem { m.seg = seg; return m }

// Plus is m, disp bytes on. It is meant for At and Indexed.
func (m Mem) Plus(disp int32) Mem { m.disp += disp; return m }

// By is m with an index register. It is meant for At.
func (m Mem) By(index Reg, scale uint8) Mem { m.index, m.scale = index, scale; return m }

// Rel is the memory at a label of the same Code, RIP-relative.
func Rel(l Label) Mem { return Mem{kind: memLabel, label: l} }

// RelAddr is the memory at an address within ±2 GiB of the code, RIP-relative.
func RelAddr(addr uint64) Mem { return Mem{kind: memAddr, addr: addr} }

// form is what an instruction's encoding has besides its operands.
type form struct {
	pre    byte  // mandatory prefix, 0 for none
	width  Width // W16 gives 66, W64 gives REX.W; W8 and W32 neither
	rex8   bool  // the register operand is a byte: 4…7 are spl…dil and need a REX
	rex8rm bool  // the same for the register in r/m
	op     [3]byte
	opLen  uint8
}

func op1(w Width, a byte) form { return form{width: w, op: [3]byte{a}, opLen: 1} }
func op2(w Width, a byte) form { return form{width: w, op: [3]byte{0x0f, a}, opLen: 2} }

// sized gives the form of an opcode whose lowest bit tells bytes from the rest.
func sized(w Width, op byte) form {
	if w == W8 {
		f := op1(w, op)
		f.rex8, f.rex8rm = true, true
		return f
	}
	return op1(w, op|1)
}

// extended is sized for an instruction whose other register field extends the
// opcode.
func extended(w Width, op byte) form {
	f := sized(w, op)
	f.rex8 = false
	return f
}

func (f form) prefix(p byte) form { f.pre = p; return f }

func (c *Code) head(f form, rex byte, need bool) {
	if f.width == W16 {
		c.Raw(0x66)
	}
	if f.pre != 0 {
		c.Raw(f.pre)
	}
	if f.width == W64 {
		rex |= 8
	}
	if rex != 0 || need {
		c.Raw(0x40 | rex)
	}
	c.Raw(f.op[:f.opLen]...)
}

// direct emits an instruction whose r/m operand is a register. reg is the
// other register, or the opcode's extension.
func (c *Code) direct(f form, reg, rm Reg) {
	if reg > R15 || rm > R15 {
		c.fail(fmt.Errorf("register %d, %d: %w", reg, rm, ErrForm))
		return
	}
	need := f.rex8 && reg >= SP && reg <= DI || f.rex8rm && rm >= SP && rm <= DI
	c.head(f, byte(reg>>3)<<2|byte(rm>>3), need)
	c.Raw(0xc0 | byte(reg&7)<<3 | byte(rm&7))
}

// memory emits an instruction whose r/m operand is in memory; imm bytes of
// immediate follow it.
func (c *Code) memory(f form, reg Reg, m Mem, imm int) {
	if err := m.check(reg); err != nil {
		c.fail(err)
		return
	}
	if m.seg != DS {
		c.Raw(byte(m.seg))
	}
	need := f.rex8 && reg >= SP && reg <= DI
	rex := byte(reg>>3) << 2
	if m.kind == memBase {
		if m.base != NoReg {
			rex |= byte(m.base >> 3)
		}
		if m.index != NoReg {
			rex |= byte(m.index>>3) << 1
		}
	}
	c.head(f, rex, need)
	c.modrm(byte(reg&7)<<3, m, imm)
}

func (m Mem) check(reg Reg) error {
	bad := reg > R15
	if m.kind == memBase {
		bad = bad || m.base > R15 && m.base != NoReg || m.index > R15 && m.index != NoReg ||
			m.index == SP || m.base == NoReg && m.index == NoReg ||
			m.index != NoReg && m.scale != 1 && m.scale != 2 && m.scale != 4 && m.scale != 8
	}
	if bad {
		return fmt.Errorf("operand %+v: %w", m, ErrForm)
	}
	return nil
}

// modrm emits ModRM, SIB and displacement. In ModRM r/m 4 announces a SIB byte
// and mod 0 with r/m 5 is RIP-relative; in SIB base 5 with mod 0 is none.
func (c *Code) modrm(reg byte, m Mem, imm int) {
	switch m.kind {
	case memAbs:
		c.Raw(reg|4, 0x25)
		c.Data32(uint32(m.disp))
		return
	case memLabel:
		c.Raw(reg | 5)
		c.ref(m.label, 4, imm)
		return
	case memAddr:
		c.Raw(reg | 5)
		c.rel32To(m.addr, imm)
		return
	case memBase:
	}
	mod, size := byte(0), 0
	switch {
	case m.base == NoReg:
		size = 4
	case m.disp == 0 && m.base&7 != BP:
	case m.disp == int32(int8(m.disp)):
		mod, size = 0x40, 1
	default:
		mod, size = 0x80, 4
	}
	switch {
	case m.index == NoReg && m.base&7 != SP:
		c.Raw(mod | reg | byte(m.base&7))
	case m.index == NoReg:
		c.Raw(mod|reg|4, 0x24)
	default:
		base := byte(5)
		if m.base != NoReg {
			base = byte(m.base & 7)
		}
		c.Raw(mod|reg|4, scaleBits(m.scale)|byte(m.index&7)<<3|base)
	}
	if size == 1 {
		c.Raw(byte(m.disp))
	} else if size == 4 {
		c.Data32(uint32(m.disp))
	}
}

func scaleBits(s uint8) byte {
	switch s {
	case 2:
		return 0x40
	case 4:
		return 0x80
	case 8:
		return 0xc0
	}
	return 0
}

// ref appends a displacement to a label, with after bytes between it and the
// end of the instruction.
func (c *Code) ref(l Label, size, after int) {
	pos := len(c.buf)
	c.fixups = append(c.fixups, fixup{pos: pos, size: size, end: pos + size + after, label: l})
	for range size {
		c.buf = append(c.buf, 0)
	}
}
