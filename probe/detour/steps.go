package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// computed makes AX the value of a chain whose source is computed: a value,
// then arithmetic on it. Changes DX.
func (b *builder) computed(c *fetch.Chain, fault asm.Label) {
	root := fetch.Chain{Source: c.From, Reg: c.Reg, N: c.N, Off: c.Off, Imm: c.Imm, Text: c.Text}
	b.value(&root, fault)
	for i := range c.Steps {
		b.step(&c.Steps[i], fault)
	}
}

// step does one operation on AX.
func (b *builder) step(s *fetch.Step, fault asm.Label) {
	switch s.Op {
	case fetch.StepLoad:
		b.load(asm.Width(s.Size), false, int64(s.Imm), fault)
		return
	case fetch.StepNeg:
		b.Neg(asm.W64, asm.AX)
		return
	case fetch.StepNot:
		b.Not(asm.W64, asm.AX)
		return
	case fetch.StepShl, fetch.StepShr, fetch.StepSar:
		b.shift(s)
		return
	}
	// DX = the value, AX = the operand
	b.Mov(asm.W64, asm.DX, asm.AX)
	if s.FromReg {
		b.register(s.Reg)
	} else {
		b.MovImm(asm.AX, s.Imm)
	}
	switch s.Op {
	case fetch.StepAdd:
		b.Op(asm.Add, asm.W64, asm.AX, asm.DX)
	case fetch.StepSub:
		b.Op(asm.Sub, asm.W64, asm.DX, asm.AX)
		b.Mov(asm.W64, asm.AX, asm.DX)
	case fetch.StepMul:
		b.Imul(asm.W64, asm.AX, asm.DX)
	case fetch.StepAnd:
		b.Op(asm.And, asm.W64, asm.AX, asm.DX)
	case fetch.StepOr:
		b.Op(asm.Or, asm.W64, asm.AX, asm.DX)
	case fetch.StepXor:
		b.Op(asm.Xor, asm.W64, asm.AX, asm.DX)
	case fetch.StepEq, fetch.StepNe:
		b.Op(asm.Cmp, asm.W64, asm.DX, asm.AX)
		cond := asm.E
		if s.Op == fetch.StepNe {
			cond = asm.NE
		}
		b.Set(cond, asm.AX)
		b.MovZX(asm.W8, asm.AX, asm.AX)
	default:
		b.fail(unsupported("step %s", s.Op))
	}
}

// shift shifts AX by a constant; from 64 on nothing is left but, of a signed
// shift, the sign.
func (b *builder) shift(s *fetch.Step) {
	op := map[fetch.StepOp]asm.Shift{fetch.StepShl: asm.Shl, fetch.StepShr: asm.Shr, fetch.StepSar: asm.Sar}[s.Op]
	switch {
	case s.Imm == 0:
	case s.Imm < 64:
		b.ShiftImm(op, asm.W64, asm.AX, uint8(s.Imm))
	case s.Op == fetch.StepSar:
		b.ShiftImm(op, asm.W64, asm.AX, 63)
	default:
		b.MovImm(asm.AX, 0)
	}
}

// checkSteps says why a computed chain can't be had in the target.
func checkSteps(c *fetch.Chain) error {
	if c.Source != fetch.SourceComputed {
		return nil
	}
	switch c.From {
	case fetch.SourceReg, fetch.SourceXMM:
		if c.From == fetch.SourceReg && c.Reg >= 16 {
			return unsupported("arithmetic on %s", c.Reg)
		}
	case fetch.SourceImm, fetch.SourceEntry:
	case fetch.SourceStack:
		if !fits(c.Off + MaxStack + redZone) {
			return unsupported("word of the stack out of reach")
		}
	default:
		return unsupported("arithmetic on source %d", c.From)
	}
	for i := range c.Steps {
		s := &c.Steps[i]
		switch {
		case s.FromReg && s.Reg >= 16:
			return unsupported("arithmetic with %s", s.Reg)
		case s.FromReg && (s.Op == fetch.StepShl || s.Op == fetch.StepShr || s.Op == fetch.StepSar):
			return unsupported("a shift by a register")
		case s.Op == fetch.StepLoad && s.Size != 1 && s.Size != 2 && s.Size != 4 && s.Size != 8:
			return unsupported("a load of %d bytes", s.Size)
		}
	}
	return nil
}
