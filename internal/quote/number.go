package quote

import "math/bits"

// AppendNumber appends v in hexadecimal with 0x.
func AppendNumber(dst []byte, v uint64) []byte {
	const zeros = "0x0000000000000000"
	n := len("0x") + max(1, (bits.Len64(v)+3)/4)
	dst = append(dst, zeros[:n]...)
	for i := len(dst) - 1; v != 0; i-- {
		dst[i] = HexDigits[v&15]
		v >>= 4
	}
	return dst
}
