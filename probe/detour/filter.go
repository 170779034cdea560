package detour

import (
	"encoding/binary"
	"math/bits"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// filter evaluates a filter of the current program. If the hit doesn't pass, the code continues at reject.
func (b *builder) filter(f *fetch.FilterProgram, reject asm.Label) {
	at := make([]asm.Label, len(f.Preds)+2)
	for i := range at {
		at[i] = b.NewLabel()
	}
	at[f.Reject()] = reject
	for i := range f.Preds {
		b.Bind(at[i])
		b.predicate(&f.Preds[i], at)
	}
	b.Bind(at[f.Accept()])
}

// predicate evaluates a predicate and branches by its result.
func (b *builder) predicate(q *fetch.Pred, at []asm.Label) {
	if q.Target < 0 || q.Target >= len(at) {
		b.fail(unsupported("filter target %d", q.Target))
		return
	}
	target, next := at[q.Target], b.NewLabel()
	yes, no := next, target // where the code continues if it is true or false
	if q.When {
		yes, no = target, next
	}
	switch q.Operand {
	case fetch.OperandText:
		b.text(q, yes, no)
	case fetch.OperandFloat:
		b.field(q, no)
		b.branch(b.compareFloat(q, yes, no), q.When, target)
	default:
		b.field(q, no)
		b.branch(b.compare(q), q.When, target)
	}
	b.Bind(next)
}

func (b *builder) branch(k asm.Cond, when bool, target asm.Label) {
	if !when {
		k = k.Not()
	}
	b.Jcc(k, target)
}

// text compares a text with the operand.
func (b *builder) text(q *fetch.Pred, yes, no asm.Label) {
	off := b.layout.name
	if q.Field == fetch.FieldArg {
		off = b.layout.early[q.Arg]
	}
	switch q.Cmp {
	case fetch.CmpEq:
		b.textMatch(off, literalPattern(q.Text), yes, no, no)
	case fetch.CmpNe:
		b.textMatch(off, literalPattern(q.Text), no, yes, no)
	default:
		b.textMatch(off, parsePattern(q.Text), yes, no, no)
	}
}

// inPlace reports whether a predicate compares a temporary with a constant.
func inPlace(q *fetch.Pred) bool {
	return q.Field == fetch.FieldArg && q.Operand != fetch.OperandRange && q.Operand != fetch.OperandCPUs &&
		q.Cmp != fetch.CmpAnd && fits(int64(q.Val))
}

// field loads the predicate's value into AX, unless it is compared inPlace. If reading it has faulted, the
// code continues at no.
func (b *builder) field(q *fetch.Pred, no asm.Label) {
	switch q.Field {
	case fetch.FieldArg:
		a := &b.prog.Args[q.Arg]
		if a.FaultBit >= 0 {
			b.TestMemImm(asm.W8, b.frame.temp(b.layout.bits+a.FaultBit/8), 1<<(a.FaultBit%8))
			b.Jcc(asm.NE, no)
		}
		if !inPlace(q) {
			b.Load(asm.W64, asm.AX, b.frame.temp(b.layout.early[q.Arg]))
		}
	case fetch.FieldPID:
		b.MovImm(asm.AX, uint64(b.p.PID))
	case fetch.FieldTID:
		b.tid()
	case fetch.FieldCPU:
		b.cpu()
	case fetch.FieldIP:
		b.ip()
	case fetch.FieldDuration:
		b.Load(asm.W64, asm.AX, b.frame.temp(b.layout.now))
		b.since(q.Arg)
	default:
		b.fail(unsupported("filter field %d", q.Field))
	}
}

// compare compares AX with the operand, and returns the condition under which the predicate is true. Changes
// AX, DX.
func (b *builder) compare(q *fetch.Pred) asm.Cond {
	switch q.Operand {
	case fetch.OperandRange:
		b.MovImm(asm.DX, q.Val)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DX)
		b.MovImm(asm.DX, q.End-q.Val)
		b.Op(asm.Cmp, asm.W64, asm.AX, asm.DX)
		if q.Cmp == fetch.CmpNe {
			return asm.AE
		}
		return asm.B
	case fetch.OperandCPUs:
		return b.inMask(q)
	}
	if q.Cmp == fetch.CmpAnd {
		b.MovImm(asm.DX, q.Val)
		b.Test(asm.W64, asm.AX, asm.DX)
		return asm.NE
	}
	if v := int64(q.Val); inPlace(q) {
		b.OpMemImm(asm.Cmp, asm.W64, b.frame.temp(b.layout.early[q.Arg]), int32(v))
	} else if fits(v) {
		b.OpImm(asm.Cmp, asm.W64, asm.AX, int32(v))
	} else {
		b.MovImm(asm.DX, q.Val)
		b.Op(asm.Cmp, asm.W64, asm.AX, asm.DX)
	}
	signed := q.Operand == fetch.OperandSigned
	switch q.Cmp {
	case fetch.CmpEq:
		return asm.E
	case fetch.CmpNe:
		return asm.NE
	case fetch.CmpLt:
		return pick(signed, asm.L, asm.B)
	case fetch.CmpLe:
		return pick(signed, asm.LE, asm.BE)
	case fetch.CmpGt:
		return pick(signed, asm.G, asm.A)
	case fetch.CmpGe:
		return pick(signed, asm.GE, asm.AE)
	}
	b.fail(unsupported("comparison %d", q.Cmp))
	return asm.E
}

func pick(signed bool, s, u asm.Cond) asm.Cond {
	if signed {
		return s
	}
	return u
}

// inMask compares AX with a set: & is true if AX is in the set, == if AX is the only element.
func (b *builder) inMask(q *fetch.Pred) asm.Cond {
	var mask []byte
	var only uint64 // the number of the only bit that is set
	n := 0
	for i, w := range q.CPUs {
		mask = binary.LittleEndian.AppendUint64(mask, w)
		if n += bits.OnesCount64(w); w != 0 {
			only = uint64(64*i + bits.TrailingZeros64(w))
		}
	}
	if q.Cmp != fetch.CmpAnd {
		if n != 1 {
			only = ^uint64(0) // no number is the only element
		}
		b.MovImm(asm.DX, only)
		b.Op(asm.Cmp, asm.W64, asm.AX, asm.DX)
		return pick(q.Cmp == fetch.CmpEq, asm.E, asm.NE)
	}
	outside := b.NewLabel()
	b.OpImm(asm.Cmp, asm.W64, asm.AX, int32(len(mask)*8))
	b.JccShort(asm.AE, outside) // no carry
	b.BtMem(asm.W64, asm.Rel(b.data(mask)), asm.AX)
	b.Bind(outside)
	return asm.B
}
