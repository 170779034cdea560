package unwind

import (
	"encoding/binary"
	"math/rand"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// TestOperations computes two values with each operator, at the
// edges of numbers.
func TestOperations(t *testing.T) {
	edges := []uint64{0, 1, 2, 3, 7, 63, 64, 65, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, 1<<63 + 1, ^uint64(0), ^uint64(1), ^uint64(62)}
	push := func(code []byte, v uint64) []byte {
		return binary.LittleEndian.AppendUint64(append(code, opConst1u+6), v)
	}
	compared := 0
	for _, o := range []byte{opAnd, 0x1b, 0x1c, 0x1d, 0x1e, 0x21, 0x22, 0x24, 0x25, 0x26, opXor, opEq, 0x2a, 0x2b, 0x2c, 0x2d, opNe,
		opAbs, opNeg, opNot, opDup, opDrop, opOver, opSwap, opNop} {
		for _, a := range edges {
			for _, b := range edges {
				if o == 0x1d && int64(a|b) < 0 {
					continue // delve's remainder is signed; no call frame information has one
				}
				code := append(push(push(push(nil, 5), a), b), o)
				x := expression{regs: &Regs{}, mem: &Stack{}}
				want, wantEnd := x.run(code)
				got, end := evaluate(code, &Regs{}, &Stack{}, 0, false)
				if end != wantEnd || got != want {
					t.Errorf("%#x of %#x and %#x: %#x, %d, want %#x, %d", o, a, b, got, end, want, wantEnd)
				}
				compared++
			}
		}
	}
	if compared < 5000 {
		t.Errorf("only %d were compared", compared)
	}
	for _, c := range []struct {
		op         byte
		a, b, want uint64
	}{
		{0x1d, ^uint64(0), 10, 5}, // gdb's: unsigned
		{0x1b, 1 << 63, ^uint64(0), 1 << 63},
		{0x26, 1 << 63, 64, ^uint64(0)},
		{0x26, 1 << 62, 200, 0},
		{0x24, 1, 64, 0},
		{0x25, ^uint64(0), ^uint64(0), 0},
	} {
		if got, ok := binary2(c.op, c.a, c.b); !ok || got != c.want {
			t.Errorf("%#x of %#x and %#x: %#x, want %#x", c.op, c.a, c.b, got, c.want)
		}
	}
	for _, o := range []byte{0x1b, 0x1d} {
		if v, ok := binary2(o, 5, 0); ok {
			t.Errorf("%#x by zero is %d", o, v)
		}
	}
}

// TestRandomExpressions runs programs without jumps: both evaluators know an
// answer, and it is the same, or neither does.
func TestRandomExpressions(t *testing.T) {
	rnd := rand.New(rand.NewSource(7))
	mem := words(0x2000, 0x2008, 0x1122334455667788, 1<<63, 0x2000)
	var regs Regs
	for n := range Columns {
		regs.Set(n, 0x2000+uint64(n%4)*8)
	}
	operations := []byte{opLit0, opLit0 + 1, opLit0 + 8, opLit0 + 31, opBreg0, opBreg0 + SP, opDup, opOver, opPick, opSwap, opRot, opDrop,
		opAbs, opAnd, 0x1c, 0x1e, opNeg, opNot, 0x21, 0x22, opPlusUconst, 0x24, 0x25, opXor, opEq, 0x2a, 0x2b, 0x2c, 0x2d, opNe, opDeref,
		opConst1u, opConst1u + 1, opConst1u + 2, opConst1u + 3, opConst1u + 4, opConst1u + 5, opConsts - 1, opConsts, opBregx, opNop}
	operands := map[byte]func() []byte{
		opBreg0: func() []byte { return []byte{byte(rnd.Intn(4) * 8)} }, opBreg0 + SP: func() []byte { return []byte{0x78} },
		opPick: func() []byte { return []byte{byte(rnd.Intn(4))} }, opPlusUconst: func() []byte { return []byte{0x80 | byte(rnd.Int()), byte(rnd.Intn(128))} },
		opBregx: func() []byte { return []byte{3, byte(rnd.Intn(128))} }, opConsts: func() []byte { return []byte{0x80 | byte(rnd.Int()), byte(rnd.Intn(128))} },
		opConsts - 1: func() []byte { return []byte{byte(rnd.Intn(128))} },
	}
	for i, n := range []int{1, 1, 2, 2, 4, 4} {
		operands[opConst1u+byte(i)] = func() []byte {
			b := make([]byte, n)
			rnd.Read(b)
			return b
		}
	}
	both := 0
	for range 20000 {
		code := []byte{opBreg0, 8, opLit0 + 3, opBreg0 + 3, 0}
		for range 1 + rnd.Intn(10) {
			o := operations[rnd.Intn(len(operations))]
			code = append(code, o)
			if f := operands[o]; f != nil {
				code = append(code, f()...)
			}
		}
		x := expression{regs: &regs, mem: mem}
		want, wantEnd := x.run(code)
		got, end := evaluate(code, &regs, mem, 0, false)
		if (end == Going) != (wantEnd == Going) || end == Going && got != want {
			t.Fatalf("% x: %#x, %d, want %#x, %d", code, got, end, want, wantEnd)
		}
		if end == Going {
			both++
		}
	}
	if both < 8000 {
		t.Errorf("only %d expressions had a value", both)
	}
}

// TestDerefSizes loads parts of a word; sizes that can't be loaded have no value,
// and not zero.
func TestDerefSizes(t *testing.T) {
	mem := words(0x2000, 0x8877665544332211)
	for size, want := range map[byte]uint64{2: 0x2211, 4: 0x44332211, 8: 0x8877665544332211} {
		if got, end := evaluate([]byte{opConst1u + 2, 0, 0x20, opDerefSize, size}, &Regs{}, mem, 0, false); end != Going || got != want {
			t.Errorf("%d bytes: %#x, %d, want %#x", size, got, end, want)
		}
	}
	for _, size := range []byte{0, 1, 3, 9, 255} {
		if got, end := evaluate([]byte{opConst1u + 2, 0, 0x20, opDerefSize, size}, &Regs{}, mem, 0, false); end != Unknown {
			t.Errorf("%d bytes: %#x, %d, want no value", size, got, end)
		}
	}
}

// TestHostileExpressions has what a damaged or hostile file may hold: none makes
// the evaluator panic, allocate by a size in the file, or run on.
func TestHostileExpressions(t *testing.T) {
	value := byte(op.DW_OP_implicit_value)
	for name, code := range map[string][]byte{
		"nothing":                {},
		"half an operand":        {byte(op.DW_OP_const4u), 1},
		"half a number":          {byte(op.DW_OP_constu), 0x80},
		"a block of 4 GiB":       {value, 0x80, 0x80, 0x80, 0x80, 0x10},
		"a jump into a constant": append([]byte{byte(op.DW_OP_skip), 1, 0, byte(op.DW_OP_const8u)}, value, 0x80, 0x80, 0x80, 0x80, 0x10, 0, 0),
		"a jump out":             {byte(op.DW_OP_skip), 0xff, 0x7f},
		"a jump before":          {byte(op.DW_OP_skip), 0, 0x80},
		"for ever":               {byte(op.DW_OP_lit1), byte(op.DW_OP_skip), 0xfc, 0xff},
		"by zero":                {byte(op.DW_OP_lit1), byte(op.DW_OP_lit0), byte(op.DW_OP_div)},
		"an empty stack":         {byte(op.DW_OP_drop)},
		"nothing to add to":      {byte(op.DW_OP_plus_uconst), 1},
		"a register":             {byte(op.DW_OP_reg0)},
		"a value":                {byte(op.DW_OP_lit1), byte(op.DW_OP_stack_value)},
		"an unknown register":    {byte(op.DW_OP_breg0) + 3, 0},
		"too long":               make([]byte, maxExpression+1),
	} {
		if got, end := evaluate(code, &Regs{}, &Stack{}, 0, false); end != Unknown && name != "for ever" {
			t.Errorf("%s: %#x, %d, want no value", name, got, end)
		}
	}
	if _, end := evaluate([]byte{byte(op.DW_OP_lit1), byte(op.DW_OP_deref)}, &Regs{}, &Stack{}, 0, false); end != Missing {
		t.Errorf("memory that is not there: %d", end)
	}
}
