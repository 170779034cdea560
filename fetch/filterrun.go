package fetch

import (
	"encoding/binary"
	"math"
	"slices"

	"kprobe/symbols/glob"
)

// runFilter evaluates the filter over the record's argument data.
func (p *Program) runFilter(c *Context, rec []byte) bool {
	return p.Filter.passes(func(q *Pred) bool { return p.test(q, c, rec) })
}

// Holds reports whether a condition of the program is true for a record that Eval has made,
// with the context from which it was made.
func (p *Program) Holds(condition int, c *Context, rec []byte) bool {
	f := p.Conditions[condition]
	return f == nil || f.passes(func(q *Pred) bool { return p.test(q, c, rec) })
}

// Scalar returns the index of the program's value of that name, if it is a single number; -1
// otherwise.
func (p *Program) Scalar(name string) int {
	return slices.IndexFunc(p.fields, func(f Field) bool {
		return f.Name == name && !f.Type.IsArray() && !f.Type.IsText() && f.Type.Layout == nil
	})
}

// Number returns a Scalar's value in a record that Eval has made; false if it can't be read.
func (p *Program) Number(value int, rec []byte) (uint64, bool) {
	a := &p.Args[value]
	return binary.LittleEndian.Uint64(rec[a.Slot:]), a.FaultBit < 0 || !hasBit(rec, a.FaultBit)
}

// test evaluates one predicate. A fault is false.
func (p *Program) test(q *Pred, c *Context, rec []byte) bool {
	if q.Operand == OperandText {
		if q.Field == FieldComm {
			return testComm(q, c.Comm)
		}
		a := &p.Args[q.Arg]
		if a.Store == StoreSymbol {
			return (a.FaultBit < 0 || !hasBit(rec, a.FaultBit)) && p.testSymbol(q, binary.LittleEndian.Uint64(rec[a.Slot:]))
		}
		if a.Type.isTextArray() {
			return (a.FaultBit < 0 || !hasBit(rec, a.FaultBit)) && testText(q, cutNUL(rec[a.Slot:a.Slot+int(a.Type.Count)]))
		}
		if a.Type.isWideID() {
			return (a.FaultBit < 0 || !hasBit(rec, a.FaultBit)) && testID(q, rec[a.Slot:a.Slot+8*int(a.Type.Count)])
		}
		text, w := textAt(rec, a.Slot)
		return w&TextFault == 0 && text != nil && testText(q, text)
	}
	var v uint64
	switch q.Field {
	case FieldArg:
		a := &p.Args[q.Arg]
		if a.FaultBit >= 0 && hasBit(rec, a.FaultBit) {
			return false
		}
		v = binary.LittleEndian.Uint64(rec[a.Slot:])
	case FieldPID:
		v = uint64(c.PID)
	case FieldTID:
		v = uint64(c.TID)
	case FieldCPU:
		v = uint64(c.CPU)
	case FieldIP:
		v = c.Regs.IP
	case FieldDuration:
		v = c.since(c.Time, q.Arg)
	}
	return q.Match(v)
}

// Match compares a value, as its slot holds it, with the predicate's operand.
// Text operands match nothing.
func (q *Pred) Match(v uint64) bool {
	switch q.Operand {
	case OperandSigned:
		return compare(q.Cmp, int64(v), int64(q.Val), v&q.Val != 0)
	case OperandUnsigned:
		return compare(q.Cmp, v, q.Val, v&q.Val != 0)
	case OperandFloat:
		f := math.Float64frombits(v)
		if q.Type.Size == 4 {
			f = float64(math.Float32frombits(uint32(v)))
		}
		return compare(q.Cmp, f, math.Float64frombits(q.Val), false)
	case OperandRange:
		in := v >= q.Val && v < q.End
		return in == (q.Cmp == CmpEq)
	case OperandCPUs:
		return q.matchCPU(v)
	}
	return false
}

// matchCPU compares a CPU number with a set: & asks whether it is in the set,
// == whether it is all of it.
func (q *Pred) matchCPU(v uint64) bool {
	in := v/64 < uint64(len(q.CPUs)) && q.CPUs[v/64]&(1<<(v%64)) != 0
	if q.Cmp == CmpAnd {
		return in
	}
	only := in
	for i, w := range q.CPUs {
		if uint64(i) == v/64 {
			w &^= 1 << (v % 64)
		}
		only = only && w == 0
	}
	return only == (q.Cmp == CmpEq)
}

func compare[T int64 | uint64 | float64](op Cmp, a, b T, and bool) bool {
	switch op {
	case CmpEq:
		return a == b
	case CmpNe:
		return a != b
	case CmpLt:
		return a < b
	case CmpLe:
		return a <= b
	case CmpGt:
		return a > b
	case CmpGe:
		return a >= b
	case CmpAnd:
		return and
	}
	return false
}

func testText(q *Pred, b []byte) bool {
	switch q.Cmp {
	case CmpEq:
		return string(b) == q.Text
	case CmpNe:
		return string(b) != q.Text
	}
	return glob.Match(q.Text, b, "!")
}

func testComm(q *Pred, s string) bool {
	var buf [64]byte
	return testText(q, buf[:copy(buf[:], s)])
}

func (p *Program) testSymbol(q *Pred, addr uint64) bool {
	var buf [256]byte
	return testText(q, AppendSymbol(buf[:0], addr, p.Symbols))
}

// testID compares the digits of an ID, whose words are given.
func testID(q *Pred, words []byte) bool {
	var digits [64]byte
	out := digits[:0]
	for ; len(words) >= 8 && len(out) < len(digits); words = words[8:] {
		out = appendWord(out, binary.LittleEndian.Uint64(words))
	}
	return testText(q, out)
}
