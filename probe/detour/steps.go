package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// computed sets AX to the value of a chain with SourceComputed: a value with operations on it. Changes DX.
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
	case fetch.StepDiff:
		b.diff(s, fault)
		return
	case fetch.StepBase:
		b.base(s, fault)
		return
	case fetch.StepWhen:
		b.when(s, fault)
		return
	case fetch.StepLabel:
		b.label(s, fault)
		return
	case fetch.StepAtMost:
		b.atMost(s, fault)
		return
	case fetch.StepSince:
		b.since(int(s.Imm))
		return
	case fetch.StepSwap:
		b.Bswap(asm.W64, asm.AX)
		return
	case fetch.StepNeg:
		b.Neg(asm.W64, asm.AX)
		return
	case fetch.StepNot:
		b.Not(asm.W64, asm.AX)
		return
	case fetch.StepShl, fetch.StepShr, fetch.StepSar:
		if s.FromReg {
			b.shiftBy(s)
		} else {
			b.shift(s)
		}
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

// diff replaces AX by the difference of two words that AX points to. Changes DX.
func (b *builder) diff(s *fetch.Step, fault asm.Label) {
	high := b.guard(int64(s.Imm), fault)
	low := high.Plus(int32(s.Imm2 - s.Imm))
	b.mayRead(high, 8, fault)
	b.Load(asm.W64, asm.DX, high)
	b.mayRead(low, 8, fault)
	b.OpLoad(asm.Sub, asm.W64, asm.DX, low)
	b.Mov(asm.W64, asm.AX, asm.DX)
}

// atMost replaces AX by a word that AX points to, if that is not greater than another such word. With FromReg it keeps
// AX, if that is not greater than a register. Else it continues at fault. Changes DX.
func (b *builder) atMost(s *fetch.Step, fault asm.Label) {
	if s.FromReg {
		b.mayFail++
		b.Mov(asm.W64, asm.DX, asm.AX)
		b.register(s.Reg)
		b.Op(asm.Cmp, asm.W64, asm.DX, asm.AX)
	} else {
		n := b.guard(int64(s.Imm), fault)
		most := n.Plus(int32(s.Imm2 - s.Imm))
		b.mayRead(n, 8, fault)
		b.Load(asm.W64, asm.DX, n)
		b.mayRead(most, 8, fault)
		b.OpLoad(asm.Cmp, asm.W64, asm.DX, most)
	}
	b.Jcc(asm.A, fault)
	b.Mov(asm.W64, asm.AX, asm.DX)
}

// base adds a word to AX: the one at an offset from the pointer that AX points to. Changes DX.
func (b *builder) base(s *fetch.Step, fault asm.Label) {
	m := b.guard(0, fault)
	b.mayRead(m, 8, fault)
	b.Load(asm.W64, asm.DX, m)
	b.mayRead(asm.At(asm.DX, int32(s.Imm)), 8, fault)
	b.OpLoad(asm.Add, asm.W64, asm.AX, asm.At(asm.DX, int32(s.Imm)))
}

// since subtracts an entry's value, a time, from AX. AX becomes 0 if that time is later. Changes DX.
func (b *builder) since(n int) {
	if !b.where.hasEntry || n < 0 || n >= len(b.prog.Entry) {
		b.fail(unsupported("an entry's time where there is no entry"))
		return
	}
	passed := b.NewLabel()
	b.OpLoad(asm.Sub, asm.W64, asm.AX, asm.At(b.entryAt(asm.DX), int32(8+8*n)))
	b.JccShort(asm.AE, passed)
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Bind(passed)
}

// when continues at fault unless a number has the required value. Keeps AX, changes DX.
func (b *builder) when(s *fetch.Step, fault asm.Label) {
	if s.FromReg {
		b.mayFail++
		b.Mov(asm.W64, asm.DX, asm.AX)
		b.register(s.Reg)
		b.XchgReg(asm.W64, asm.AX, asm.DX)
		b.ShiftImm(asm.Shr, asm.W64, asm.DX, uint8(s.Imm))
		if up := 64 - 8*s.Size; up > 0 {
			b.ShiftImm(asm.Shl, asm.W64, asm.DX, up)
			b.ShiftImm(asm.Shr, asm.W64, asm.DX, up)
		}
	} else {
		m := b.guard(int64(s.Imm), fault)
		b.mayRead(m, int(s.Size), fault)
		b.LoadZX(asm.Width(s.Size), asm.DX, m)
	}
	other := b.NewLabel()
	if fits(int64(s.Imm2)) {
		b.OpImm(asm.Cmp, asm.W64, asm.DX, int32(s.Imm2))
	} else { // one half after the other
		b.OpImm(asm.Cmp, asm.W32, asm.DX, int32(s.Imm2))
		b.JccShort(asm.NE, other)
		b.ShiftImm(asm.Shr, asm.W64, asm.DX, 32)
		b.OpImm(asm.Cmp, asm.W32, asm.DX, int32(s.Imm2>>32))
	}
	if s.Not {
		b.Jcc(asm.E, fault)
		b.Bind(other)
		return
	}
	b.Bind(other)
	b.Jcc(asm.NE, fault)
}

func shiftOf(op fetch.StepOp) asm.Shift {
	switch op {
	case fetch.StepShl:
		return asm.Shl
	case fetch.StepShr:
		return asm.Shr
	}
	return asm.Sar
}

// shiftBy shifts AX by a register. Changes DX; CX is kept.
func (b *builder) shiftBy(s *fetch.Step) {
	less := b.NewLabel()
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.register(s.Reg)
	b.XchgReg(asm.W64, asm.AX, asm.CX)
	b.OpImm(asm.Cmp, asm.W64, asm.CX, 64)
	b.JccShort(asm.B, less)
	if s.Op == fetch.StepSar {
		b.MovImm(asm.CX, 63)
	} else {
		b.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	}
	b.Bind(less)
	b.ShiftCL(shiftOf(s.Op), asm.W64, asm.DX)
	b.Mov(asm.W64, asm.CX, asm.AX)
	b.Mov(asm.W64, asm.AX, asm.DX)
}

// shift shifts AX by a constant. From 64 on the result is 0 or, for a signed right shift, the sign.
func (b *builder) shift(s *fetch.Step) {
	op := shiftOf(s.Op)
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

// checkSteps returns an error if a detour can't compute a chain.
func checkSteps(c *fetch.Chain, p *Params) error {
	if c.Source != fetch.SourceComputed {
		return nil
	}
	switch c.From {
	case fetch.SourceText, fetch.SourceComm, fetch.SourceComputed:
		return unsupported("arithmetic on source %d", c.From)
	}
	root := fetch.ArgProgram{Chain: fetch.Chain{Source: c.From, Reg: c.Reg, N: c.N, Off: c.Off}}
	if err := checkArg(&root, p); err != nil {
		return err
	}
	for i := range c.Steps {
		s := &c.Steps[i]
		switch {
		case s.Op == fetch.StepLabel && (s.Imm != fetch.LabelList || s.Text == "" || len(s.Text) > fetch.MaxLabelName):
			return unsupported("a label of a program of before Go 1.24")
		case s.FromReg && s.Reg == fetch.RegFlags:
			return unsupported("arithmetic with %s", s.Reg)
		case (s.Op == fetch.StepDiff || s.Op == fetch.StepAtMost) && (!fits(int64(s.Imm)) || !fits(int64(s.Imm2)) || !fits(int64(s.Imm2-s.Imm))):
			return unsupported("words that far apart")
		case s.Op == fetch.StepBase && !fits(int64(s.Imm)), s.Op == fetch.StepWhen && (!fits(int64(s.Imm)) || s.FromReg && s.Imm > 63):
			return unsupported("a number that large")
		case s.Op == fetch.StepWhen && s.Size != 1 && s.Size != 2 && s.Size != 4 && s.Size != 8:
			return unsupported("a number of %d bytes", s.Size)
		case s.Op == fetch.StepLoad && s.Size != 1 && s.Size != 2 && s.Size != 4 && s.Size != 8:
			return unsupported("a load of %d bytes", s.Size)
		}
		if s.FromReg {
			if err := checkRegister(s.Reg, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRegister returns an error if a detour can't read a register.
func checkRegister(r fetch.Reg, p *Params) error {
	if (r == fetch.RegFSBase || r == fetch.RegGSBase) && !p.FSGSBase {
		return unsupported("the kernel doesn't let programs read %s", r)
	}
	return nil
}
