package unwind

import "kprobe/symbols/dwread"

// expression is a second evaluator of DWARF's operations (DWARF 5, 2.5 and
// 6.4.2), written from the standard, to compare with.
type expression struct {
	regs  *Regs
	mem   Memory
	stack []uint64
	end   End
}

// Bounds on one expression: operations that are run, and values on the stack.
const (
	maxOps    = 1000
	maxValues = 64
)

// The operations (DWARF 5, 7.7.1).
const (
	opAddr       = 0x03
	opDeref      = 0x06
	opConst1u    = 0x08
	opConsts     = 0x11
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opPick       = 0x15
	opSwap       = 0x16
	opRot        = 0x17
	opAbs        = 0x19
	opAnd        = 0x1a
	opNeg        = 0x1f
	opNot        = 0x20
	opPlusUconst = 0x23
	opXor        = 0x27
	opBra        = 0x28
	opEq         = 0x29
	opNe         = 0x2e
	opSkip       = 0x2f
	opLit0       = 0x30
	opBreg0      = 0x70
	opBregx      = 0x92
	opDerefSize  = 0x94
	opNop        = 0x96
)

// run computes an expression's value.
func (x *expression) run(code []byte) (uint64, End) {
	r := dwread.At(code, 0)
	for n := 0; r.At < uint64(len(code)) && x.end == Going; n++ {
		if n == maxOps || r.Bad || len(x.stack) > maxValues {
			return 0, Unknown
		}
		x.op(&r, r.U8())
	}
	switch {
	case x.end != Going:
		return 0, x.end
	case r.Bad || len(x.stack) == 0:
		return 0, Unknown
	}
	return x.stack[len(x.stack)-1], Going
}

func (x *expression) push(v uint64) { x.stack = append(x.stack, v) }

func (x *expression) pop() uint64 {
	n := len(x.stack)
	if n == 0 {
		x.end = Unknown
		return 0
	}
	v := x.stack[n-1]
	x.stack = x.stack[:n-1]
	return v
}

// peek is the n-th value from the top.
func (x *expression) peek(n int) uint64 {
	if n >= len(x.stack) {
		x.end = Unknown
		return 0
	}
	return x.stack[len(x.stack)-1-n]
}

func (x *expression) register(n uint64, off int64) {
	v, ok := x.regs.Get(n)
	if !ok {
		x.end = Unknown
	}
	x.push(v + uint64(off))
}

func (x *expression) load(at, size uint64) {
	if size == 0 || size > 8 || x.end != Going {
		x.end = Unknown
		return
	}
	v, ok := x.mem.Word(at)
	if !ok {
		x.end = Missing
	}
	if size < 8 {
		v &= 1<<(8*size) - 1
	}
	x.push(v)
}

func (x *expression) op(r *dwread.Reader, op byte) {
	switch {
	case op >= opLit0 && op < opLit0+32:
		x.push(uint64(op - opLit0))
		return
	case op >= opBreg0 && op < opBreg0+32:
		x.register(uint64(op-opBreg0), r.Sleb())
		return
	case op >= opConst1u && op <= opConsts || op == opAddr:
		x.push(constant(r, op))
		return
	case op >= opAnd && op <= opXor && op != opNeg && op != opNot && op != opPlusUconst || op >= opEq && op <= opNe:
		b, a := x.pop(), x.pop()
		v, ok := binary2(op, a, b)
		if !ok {
			x.end = Unknown
		}
		x.push(v)
		return
	}
	switch op {
	case opDeref:
		x.load(x.pop(), 8)
	case opDerefSize:
		x.load(x.pop(), uint64(r.U8()))
	case opDup:
		x.push(x.peek(0))
	case opDrop:
		x.pop()
	case opOver:
		x.push(x.peek(1))
	case opPick:
		x.push(x.peek(int(r.U8())))
	case opSwap:
		b, a := x.pop(), x.pop()
		x.stack = append(x.stack, b, a)
	case opRot:
		c, b, a := x.pop(), x.pop(), x.pop()
		x.stack = append(x.stack, c, a, b)
	case opAbs:
		if v := int64(x.pop()); v < 0 {
			x.push(uint64(-v))
		} else {
			x.push(uint64(v))
		}
	case opNeg:
		x.push(-x.pop())
	case opNot:
		x.push(^x.pop())
	case opPlusUconst:
		x.push(x.pop() + r.Uleb())
	case opBregx:
		x.register(r.Uleb(), r.Sleb())
	case opBra, opSkip:
		by := int64(int16(r.U16()))
		if op == opSkip || x.pop() != 0 {
			r.At += uint64(by)
			r.Bad = r.Bad || r.At > uint64(len(r.B))
		}
	case opNop:
	default:
		x.end = Unknown
	}
}

// constant reads DW_OP_addr and DW_OP_const*.
func constant(r *dwread.Reader, op byte) uint64 {
	switch op {
	case opConst1u:
		return uint64(r.U8())
	case opConst1u + 1:
		return uint64(int8(r.U8()))
	case opConst1u + 2:
		return uint64(r.U16())
	case opConst1u + 3:
		return uint64(int16(r.U16()))
	case opConst1u + 4:
		return uint64(r.U32())
	case opConst1u + 5:
		return uint64(int32(r.U32()))
	case opConsts - 1:
		return r.Uleb()
	case opConsts:
		return uint64(r.Sleb())
	}
	return r.U64()
}

// binary2 computes a op b.
func binary2(op byte, a, b uint64) (v uint64, ok bool) {
	truth := func(t bool) (uint64, bool) {
		if t {
			return 1, true
		}
		return 0, true
	}
	switch op {
	case opAnd:
		return a & b, true
	case 0x1b, 0x1d: // div, signed; mod, unsigned
		if b == 0 {
			return 0, false
		}
		if op == 0x1d {
			return a % b, true
		}
		if int64(b) == -1 {
			return -a, true
		}
		return uint64(int64(a) / int64(b)), true
	case 0x1c:
		return a - b, true
	case 0x1e:
		return a * b, true
	case 0x21:
		return a | b, true
	case 0x22:
		return a + b, true
	case 0x24:
		return a << b, true
	case 0x25:
		return a >> b, true
	case 0x26:
		return uint64(int64(a) >> min(b, 63)), true
	case opXor:
		return a ^ b, true
	case opEq:
		return truth(a == b)
	case 0x2a:
		return truth(int64(a) >= int64(b))
	case 0x2b:
		return truth(int64(a) > int64(b))
	case 0x2c:
		return truth(int64(a) <= int64(b))
	case 0x2d:
		return truth(int64(a) < int64(b))
	}
	return truth(a != b)
}
