package unwind

import (
	"encoding/binary"
	"math/rand"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// delves runs an expression with delve's evaluator, which panics when it
// divides by zero.
func delves(code []byte, regs *Regs, mem *Stack) (v uint64, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	d := op.NewDwarfRegisters(0, nil, binary.LittleEndian, PC, SP, 6, 0)
	for n := range uint64(Columns) {
		if v, known := regs.Get(n); known {
			d.AddReg(n, op.DwarfRegisterFromUint64(v))
		}
	}
	read := func(b []byte, at uint64) (int, error) {
		w, ok := mem.Word(at)
		if !ok {
			return 0, op.ErrMemoryReadUnavailable
		}
		var all [8]byte
		binary.LittleEndian.PutUint64(all[:], w)
		return copy(b, all[:]), nil
	}
	n, pieces, err := op.ExecuteStackProgram(*d, code, 8, read)
	return uint64(n), err == nil && pieces == nil
}

// TestOperationsAgainstDelve computes two values with each operator, at the
// edges of numbers.
func TestOperationsAgainstDelve(t *testing.T) {
	edges := []uint64{0, 1, 2, 3, 7, 63, 64, 65, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, 1<<63 + 1, ^uint64(0), ^uint64(1), ^uint64(62)}
	push := func(code []byte, v uint64) []byte {
		return binary.LittleEndian.AppendUint64(append(code, opConst1u+6), v)
	}
	compared := 0
	for _, o := range []byte{opAnd, 0x1b, 0x1c, 0x1d, 0x1e, 0x21, 0x22, 0x24, 0x25, 0x26, opXor, opEq, 0x2a, 0x2b, 0x2c, 0x2d, opNe,
		opAbs, opNeg, opNot, opDup, opDrop, opOver, opSwap, opNop} {
		for _, a := range edges {
			for _, b := range edges {
				if o == 0x1d && int64(a|b) < 0 || o == 0x1b && b == 0 || o == 0x26 && int64(b) < 0 {
					continue // delve's remainder is signed, and its shifts count from 0
				}
				code := append(push(push(push(nil, 5), a), b), o)
				x := expression{regs: &Regs{}, mem: &Stack{}}
				got, end := x.run(code)
				want, ok := delves(code, &Regs{}, &Stack{})
				if ok != (end == Going) || ok && got != want {
					t.Errorf("%#x of %#x and %#x: %#x, %d, delve has %#x, %v", o, a, b, got, end, want, ok)
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

// TestRandomExpressionsAgainstDelve runs programs without jumps. Where both
// know an answer it is the same; delve must know one whenever we do.
func TestRandomExpressionsAgainstDelve(t *testing.T) {
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
		got, end := x.run(code)
		want, ok := delves(code, &regs, mem)
		if (end == Going) != ok || ok && got != want {
			t.Fatalf("% x: %#x, %d, delve has %#x, %v", code, got, end, want, ok)
		}
		if ok {
			both++
		}
	}
	if both < 8000 {
		t.Errorf("only %d expressions had a value", both)
	}
}

// TestDerefSizes loads each number of bytes; none and more than a word are no
// loads, and not zero.
func TestDerefSizes(t *testing.T) {
	mem := words(0x2000, 0x8877665544332211)
	for size, want := range map[byte]uint64{1: 0x11, 2: 0x2211, 3: 0x332211, 4: 0x44332211, 7: 0x77665544332211, 8: 0x8877665544332211} {
		x := expression{regs: &Regs{}, mem: mem}
		if got, end := x.run([]byte{opConst1u + 2, 0, 0x20, opDerefSize, size}); end != Going || got != want {
			t.Errorf("%d bytes: %#x, %d, want %#x", size, got, end, want)
		}
	}
	for _, size := range []byte{0, 9, 255} {
		x := expression{regs: &Regs{}, mem: mem}
		if got, end := x.run([]byte{opConst1u + 2, 0, 0x20, opDerefSize, size}); end != Unknown {
			t.Errorf("%d bytes: %#x, %d, want no value", size, got, end)
		}
	}
}
