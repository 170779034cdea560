package output

import "kprobe/internal/quote"

// appendPadded appends v in decimal, right-aligned in width columns of pad.
func appendPadded(dst []byte, v uint64, width int, pad byte) []byte {
	var tmp [20]byte
	i := len(tmp)
	for {
		i--
		tmp[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			break
		}
	}
	for n := len(tmp) - i; n < width; n++ {
		dst = append(dst, pad)
	}
	return append(dst, tmp[i:]...)
}

// appendMicros appends six digits, the microseconds below one second.
func appendMicros(dst []byte, us uint64) []byte {
	v := uint32(us) // division of this width is cheap
	return append(dst,
		byte('0'+v/100000%10), byte('0'+v/10000%10), byte('0'+v/1000%10),
		byte('0'+v/100%10), byte('0'+v/10%10), byte('0'+v%10))
}

// appendHex appends v in hexadecimal with 0x.
func appendHex(dst []byte, v uint64) []byte { return quote.AppendNumber(dst, v) }
