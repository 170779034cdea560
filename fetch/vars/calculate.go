package vars

import (
	"kprobe/fetch"
	"kprobe/symbols/dwread"
)

func constOperand(op uint8, r *dwread.Reader) uint64 {
	switch op - opConst1u {
	case 0:
		return r.Uint(1)
	case 1:
		return uint64(int8(r.Uint(1)))
	case 2:
		return r.Uint(2)
	case 3:
		return uint64(int16(r.Uint(2)))
	case 4:
		return r.Uint(4)
	case 5:
		return uint64(int32(r.Uint(4)))
	case 6, 7:
		return r.Uint(8)
	case 8:
		return r.Uleb()
	}
	return uint64(r.Sleb())
}

func (x *evaluator) shuffle(op uint8) error {
	n := len(x.stack)
	switch {
	case n == 0 || n == 1 && (op == opOver || op == opSwap):
		return errBadExpression
	case op == opDup:
		return x.push(x.stack[n-1])
	case op == opOver:
		return x.push(x.stack[n-2])
	case op == opDrop:
		x.stack = x.stack[:n-1]
	default:
		x.stack[n-1], x.stack[n-2] = x.stack[n-2], x.stack[n-1]
	}
	return nil
}

// binary computes one step with two values. One of them must be a constant or a register,
// because steps have only one register to compute in. The two must have the same type, or one
// the generic type of constants.
func (x *evaluator) binary(op uint8) error {
	b, err := x.pop()
	if err != nil {
		return err
	}
	a, err := x.pop()
	if err != nil {
		return err
	}
	if a.typ.opaque || b.typ.opaque {
		return errOpaque
	}
	typ := a.typ
	if typ == (numType{}) {
		typ = b.typ
	}
	push := func(s sym) error { return x.push(s.as(typ)) }
	step := map[uint8]fetch.StepOp{
		opAnd: fetch.StepAnd, opMinus: fetch.StepSub, opMul: fetch.StepMul, opOr: fetch.StepOr, opPlus: fetch.StepAdd,
		opShl: fetch.StepShl, opShr: fetch.StepShr, opShra: fetch.StepSar, opXor: fetch.StepXor, opEq: fetch.StepEq, opNe: fetch.StepNe,
	}[op]
	commutes := op != opMinus && op != opShl && op != opShr && op != opShra
	_, simpleB := b.operand()
	if _, ok := a.operand(); ok && !simpleB && commutes {
		a, b = b, a
	}
	if c, ok := b.isConst(); ok {
		switch op {
		case opPlus:
			return push(a.add(int64(c)))
		case opMinus:
			return push(a.add(-int64(c)))
		}
		return push(a.fold(step, c))
	}
	if r, ok := b.isReg(); ok {
		return push(a.step(fetch.Step{Op: step, FromReg: true, Reg: r}))
	}
	if r, c, ok := b.regPlus(); ok && (op == opPlus || op == opMinus) {
		if op == opMinus {
			c = -c
		}
		return push(a.step(fetch.Step{Op: step, FromReg: true, Reg: r}).add(c))
	}
	return unknown("its value would have to be computed from several registers")
}

// regPlus splits a value into a register and a constant, if it is the sum of the two.
func (s sym) regPlus() (fetch.Reg, int64, bool) {
	if s.src.Source != fetch.SourceReg || len(s.steps) != 1 || s.steps[0].Op != fetch.StepAdd || s.steps[0].FromReg {
		return 0, 0, false
	}
	return s.src.Reg, int64(s.steps[0].Imm), true
}

// operand reports whether a value can be the operand of a step.
func (s sym) operand() (sym, bool) {
	if _, ok := s.isConst(); ok {
		return s, true
	}
	_, ok := s.isReg()
	return s, ok
}

// fold applies a step with a constant. If the value is a constant, too, it is computed at
// once.
func (s sym) fold(op fetch.StepOp, c uint64) sym {
	if v, ok := s.isConst(); ok {
		return constant(op.Apply(v, c))
	}
	return s.step(fetch.Step{Op: op, Imm: c})
}
