package fetch

import (
	"encoding/binary"
	"math"
	"math/big"
)

// Wide is a kind of number of 16 bytes, which debug information alone names.
type Wide uint8

// The numbers of 16 bytes; the zero Wide is none.
const (
	WideSigned   Wide = iota + 1 // __int128, i128
	WideUnsigned                 // unsigned __int128, u128
	WideX87                      // long double: the x87's extended format, in the low 10 bytes
	WideFloat                    // __float128: IEEE 754's binary128
)

// integer is the number of a WideSigned or WideUnsigned.
func (w Wide) integer(b []byte) *big.Int {
	n := new(big.Int).SetUint64(binary.LittleEndian.Uint64(b[8:]))
	n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(binary.LittleEndian.Uint64(b)))
	if w == WideSigned && b[15]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	return n
}

// float is the number of a WideX87 or WideFloat; special is what is no number.
func (w Wide) float(b []byte) (f *big.Float, special float64) {
	low, high := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	mantissa, bits := new(big.Int).SetUint64(low), uint(64)
	exp, bias, neg := int(high&0x7fff), 16383+63, high&0x8000 != 0
	fraction := low << 1
	if w == WideFloat {
		exp, bias, neg = int(high>>48&0x7fff), 16383+112, high>>63 != 0
		top := high & (1<<48 - 1)
		fraction = low | top
		if exp != 0 {
			top |= 1 << 48
		}
		mantissa.SetUint64(top)
		mantissa.Lsh(mantissa, 64).Or(mantissa, new(big.Int).SetUint64(low))
		bits = 113
	}
	switch {
	case exp == 0x7fff && fraction != 0:
		return nil, math.NaN()
	case exp == 0x7fff:
		return nil, math.Inf(1 - 2*b2i(neg))
	case exp == 0:
		exp = 1 // denormal
	}
	f = new(big.Float).SetPrec(bits).SetInt(mantissa)
	f.SetMantExp(f, exp-bias)
	if neg {
		f.Neg(f)
	}
	return f, 0
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// appendNumber appends the number in decimal, of floating-point ones in the
// shortest form that reads back the same.
func (w Wide) appendNumber(dst, b []byte) []byte {
	if w == WideSigned || w == WideUnsigned {
		return w.integer(b).Append(dst, 10)
	}
	f, special := w.float(b)
	if f == nil {
		return AppendText(dst, Type{Base: Float, Size: 8}, Value{Int: math.Float64bits(special)}, nil)
	}
	return f.Append(dst, 'g', -1)
}

// appendJSON is appendNumber for JSON: integers beyond 2^53 are strings.
func (w Wide) appendJSON(dst, b []byte) []byte {
	if w == WideSigned || w == WideUnsigned {
		n := w.integer(b)
		if n.BitLen() > 54 || n.CmpAbs(big.NewInt(maxExact)) > 0 {
			return append(n.Append(append(dst, '"'), 10), '"')
		}
		return n.Append(dst, 10)
	}
	f, special := w.float(b)
	if f == nil {
		return appendFloat(dst, special, 64)
	}
	return f.Append(dst, 'g', -1)
}
