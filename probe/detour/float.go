package detour

import (
	"math"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// compareFloat compares the floating-point number whose bits are AX with the operand, and returns the
// condition under which the predicate is true. For a NaN the code continues at yes or no. Changes CX,
// DX.
//
// It uses no vector register. The order of floating-point numbers is the order of their bits as
// integers, if a negative number is taken as minus the integer of its magnitude (its key). A 32-bit
// number is compared with the nearest 32-bit numbers below and above the operand.
func (b *builder) compareFloat(q *fetch.Pred, yes, no asm.Label) asm.Cond {
	c := math.Float64frombits(q.Val)
	var below, above int64 // keys of the nearest numbers not above and not below the operand
	var inf, magnitude uint64
	if q.Type.Size == 4 {
		inf, magnitude = 0x7f80_0000, 1<<31-1
		b.MovSX(asm.W32, asm.AX, asm.AX)
		below, above = float32Keys(c)
	} else {
		inf, magnitude = 0x7ff<<52, 1<<63-1
		below = key(q.Val&magnitude, q.Val>>63 != 0)
		above = below
	}
	nan := no
	if q.Cmp == fetch.CmpNe {
		nan = yes
	}
	if math.IsNaN(c) || q.Cmp == fetch.CmpAnd || below != above && (q.Cmp == fetch.CmpEq || q.Cmp == fetch.CmpNe) {
		b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
		return pick(q.Cmp == fetch.CmpNe, asm.E, asm.NE) // always, or never
	}
	positive := b.NewLabel()
	b.Mov(asm.W64, asm.CX, asm.AX)
	b.MovImm(asm.DX, magnitude)
	b.Op(asm.And, asm.W64, asm.AX, asm.DX)
	b.MovImm(asm.DX, inf)
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.DX)
	b.Jcc(asm.A, nan)
	b.Test(asm.W64, asm.CX, asm.CX)
	b.JccShort(asm.NS, positive)
	b.Neg(asm.W64, asm.AX)
	b.Bind(positive)
	than, k := below, asm.E
	switch q.Cmp {
	case fetch.CmpNe:
		k = asm.NE
	case fetch.CmpLt:
		than, k = above, asm.L
	case fetch.CmpLe:
		k = asm.LE
	case fetch.CmpGt:
		k = asm.G
	case fetch.CmpGe:
		than, k = above, asm.GE
	}
	b.MovImm(asm.DX, uint64(than))
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.DX)
	return k
}

func key(magnitude uint64, negative bool) int64 {
	if negative {
		return -int64(magnitude)
	}
	return int64(magnitude)
}

// float32Keys returns the keys of the greatest 32-bit number not above c and of the least not below it. c is
// not a NaN.
func float32Keys(c float64) (below, above int64) {
	f := float32(c) // rounds to the nearest, or to an infinity
	bits := math.Float32bits(f)
	k := key(uint64(bits&(1<<31-1)), bits>>31 != 0)
	switch {
	case float64(f) > c:
		return k - 1, k
	case float64(f) < c:
		return k, k + 1
	}
	return k, k
}
