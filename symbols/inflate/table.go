package inflate

import "math/bits"

// Entries of tables
//
// A code's table is indexed by the next bits of the stream; codes that are longer
// lead to a second table behind it. An entry's lowest byte is how many bits it takes.
//
//	literals  literal, the byte from bit 16 on
//	copies    from bit 16 on the smallest length or distance, from bit 8 on the bits
//	          of the code; the bits behind those are added
//	others    special: link, with where its table is from bit 16 on and the bits
//	          that it is indexed by from bit 8 on; finish; or neither, no code
const (
	literal = 1 << 31
	special = 1 << 15
	link    = 1 << 14
	finish  = 1 << 13

	takes = 0xff // mask
)

// What codes are looked up by at first, in bits, and how large tables are: the
// largest that complete codes need (zlib's enough.c tells 2340 and 402).
const (
	lengthBits   = 11
	distanceBits = 8
	clenBits     = 7

	lengthSize   = 1 << 12
	distanceSize = 1 << 9
	clenSize     = 1 << clenBits

	longestCode = 15
)

// The meaning of symbols (RFC 1951, 3.2.5), as entries without lengths of codes;
// what has no meaning is special.
var (
	lengthEntries   = makeLengths()
	distanceEntries = makeDistances()
	clenEntries     = makeClens()
)

func makeLengths() (out [288]uint32) {
	for i := range 256 {
		out[i] = literal | uint32(i)<<16
	}
	out[256] = special | finish
	next := uint32(3)
	for i := range uint32(28) {
		extra := uint32(0)
		if i >= 8 {
			extra = i/4 - 1
		}
		out[257+i] = next<<16 | extra
		next += 1 << extra
	}
	out[285] = 258 << 16
	out[286], out[287] = special, special
	return out
}

func makeDistances() (out [32]uint32) {
	next := uint32(1)
	for i := range uint32(30) {
		extra := uint32(0)
		if i >= 4 {
			extra = i/2 - 1
		}
		out[i] = next<<16 | extra
		next += 1 << extra
	}
	out[30], out[31] = special, special
	return out
}

func makeClens() (out [19]uint32) {
	for i := range out {
		out[i] = uint32(i) << 16
	}
	return out
}

// build makes the table of a code of its lengths, one for each symbol; index is how
// many bits it is indexed by at first. It reports whether lengths are those of a code:
// complete, or with one symbol of one bit, or, where none may be, none.
func build(table []uint32, lengths []uint8, entries []uint32, index int, none bool) bool {
	var count [longestCode + 1]int
	for _, l := range lengths {
		count[l]++
	}
	longest := longestCode
	for longest > 0 && count[longest] == 0 {
		longest--
	}
	left := 1 // codes that are free
	for l := 1; l <= longestCode; l++ {
		if left = left<<1 - count[l]; left < 0 {
			return false
		}
	}
	if left > 0 {
		if longest > 1 || longest == 0 && !none {
			return false
		}
		for i := range table[:1<<index] {
			table[i] = special | 1
		}
	}
	var at [longestCode + 2]int
	for l := 1; l <= longestCode; l++ {
		at[l+1] = at[l] + count[l]
	}
	var sorted [288]uint16
	for s, l := range lengths {
		if l > 0 {
			sorted[at[l]] = uint16(s)
			at[l]++
		}
	}
	code := uint32(0) // its first bit is the lowest
	next, from, subBits := 1<<index, 0, 0
	prefix := ^uint32(0)
	i := 0
	for l := 1; l <= longest; l++ {
		for ; count[l] > 0; count[l]-- {
			e := entries[sorted[i]]
			i++
			if l <= index {
				e = withLength(e, l)
				for k := int(code); k < 1<<index; k += 1 << l {
					table[k] = e
				}
			} else {
				if p := code & (1<<index - 1); p != prefix {
					prefix, from, subBits = p, next, l-index
					for room := 1<<subBits - count[l]; room > 0 && index+subBits < longest; {
						subBits++
						room = room<<1 - count[index+subBits]
					}
					next += 1 << subBits
					if next > len(table) {
						return false
					}
					table[p] = special | link | uint32(from)<<16 | uint32(subBits)<<8 | uint32(index)
				}
				e = withLength(e, l-index)
				for k := int(code >> index); k < 1<<subBits; k += 1 << (l - index) {
					table[from+k] = e
				}
			}
			code = following(code, l)
		}
	}
	return true
}

// withLength is a symbol's entry in a table where its code has l bits.
func withLength(e uint32, l int) uint32 {
	if e&(literal|special) != 0 {
		return e | uint32(l)
	}
	return e + uint32(l)<<8 + uint32(l) // what is added to is taken with it
}

// following is the code of l bits behind another, both with the first bit lowest.
func following(code uint32, l int) uint32 {
	free := ^code & (1<<l - 1)
	if free == 0 {
		return 0
	}
	high := uint32(1) << (bits.Len32(free) - 1)
	return code&(high-1) | high
}
