package inflate

import "math/bits"

// Sizes of the alphabets, and how many bits of a code find its entry at once.
const (
	maxLit, maxDist   = 288, 32
	endOfBlock        = 256
	litBits, distBits = 11, 9
	longest           = 15
)

// An entry says what a code means:
//
//	bits 0-7    how many bits it has, with those that follow it (of a link: those of the first table)
//	bits 8-11   how many without them (of a link: how many bits find the entry in the second table)
//	bits 12-15  its kind
//	bits 16-31  a byte; the least length or distance; where a second table begins
const (
	literal  = 1 << 15
	special  = 1 << 14 // the end of the block, a link, or, alone, no code
	isLink   = 1 << 13
	isEnd    = 1 << 12
	codeMask = 0xf
)

// table finds the entry of a code: by its first bits, and if it has more, in a second table.
type table struct{ entries []uint32 }

// make builds the table of the code whose symbols have so many bits each. few allows a code of no symbol or of one,
// whose other half means nothing. It reports whether each sequence of bits is one code.
func (t *table) make(lengths []uint8, first uint, symbols []uint32, few bool) bool {
	var count, next [longest + 2]int
	for _, n := range lengths {
		count[n]++
	}
	used := len(lengths) - count[0]
	count[0] = 0
	left, most := 1, uint(0)
	for n := 1; n <= longest; n++ {
		if left = left<<1 - count[n]; left < 0 {
			return false
		}
		next[n+1] = (next[n] + count[n]) << 1
		if count[n] > 0 {
			most = uint(n)
		}
	}
	if left > 0 && (!few || used > 1 || most > 1) {
		return false
	}
	size := 1 << first
	if cap(t.entries) < size {
		t.entries = make([]uint32, size, 2*size)
	}
	t.entries = t.entries[:size]
	if left > 0 || most > first {
		for i := range t.entries {
			t.entries[i] = special
		}
	}
	for sym, l := range lengths {
		if l == 0 {
			continue
		}
		n := uint(l)
		code := int(bits.Reverse16(uint16(next[n])) >> (16 - n))
		next[n]++
		e := symbols[sym]
		if n <= first {
			e += uint32(n)<<8 + uint32(n)
			for i := code; i < size; i += 1 << n {
				t.entries[i] = e
			}
			continue
		}
		second := most - first // bits
		link := &t.entries[code&(size-1)]
		if *link&isLink == 0 {
			at := len(t.entries)
			*link = uint32(at)<<16 | special | isLink | uint32(second)<<8 | uint32(first)
			for range 1 << second {
				t.entries = append(t.entries, special)
			}
			link = &t.entries[code&(size-1)]
		}
		at := int(*link >> 16)
		e += uint32(n-first)<<8 + uint32(n-first)
		for i := code >> first; i < 1<<second; i += 1 << (n - first) {
			t.entries[at+i] = e
		}
	}
	return true
}

// The symbols' entries, without the bits of their codes.
var (
	litSymbols    = literals()
	distSymbols   = distances()
	lengthSymbols = func() (out [19]uint32) {
		for i := range out {
			out[i] = uint32(i) << 16
		}
		return out
	}()
)

func literals() (out [maxLit]uint32) {
	for i := range endOfBlock {
		out[i] = uint32(i)<<16 | literal
	}
	out[endOfBlock] = special | isEnd
	base := uint32(3)
	for i := range uint32(28) {
		extra := uint32(0)
		if i >= 8 {
			extra = (i - 4) / 4
		}
		out[endOfBlock+1+i] = base<<16 | extra
		base += 1 << extra
	}
	out[285] = 258 << 16
	out[286], out[287] = special, special
	return out
}

func distances() (out [maxDist]uint32) {
	base := uint32(1)
	for i := range uint32(30) {
		extra := uint32(0)
		if i >= 4 {
			extra = (i - 2) / 2
		}
		out[i] = base<<16 | extra
		base += 1 << extra
	}
	out[30], out[31] = special, special
	return out
}
