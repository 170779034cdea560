package inflate

import "math/bits"

// entry is what a code means: how many bits it has (the lowest 8), how many extra
// bits follow it (the next 4), flags, and in the upper half a byte, a length or
// distance without what the extra bits add, or where a second table starts. 0 is no code.
type entry uint32

const (
	isEnd     entry = 1 << 13
	isSub     entry = 1 << 14
	isLiteral entry = 1 << 15
)

func (e entry) bits() int   { return int(e & 0xff) }
func (e entry) extra() uint { return uint(e >> 8 & 15) }
func (e entry) value() int  { return int(e >> 16) }

// table finds a code by the bits that come next: by the first few of them, or in a
// second table by those that follow.
type table struct {
	first [1 << litBits]entry
	more  []entry
}

// How many bits the first tables look at.
const (
	litBits  = 11
	distBits = 9
	lenBits  = 7
)

// maxCode is the length of the longest code, in bits.
const maxCode = 15

// build makes the table of codes whose lengths are given, of what they mean. ok is
// false where these are no lengths of codes.
func (t *table) build(lens []uint8, means []entry, primary int) (ok bool) {
	var count, next [maxCode + 1]int
	longest := 0
	for _, n := range lens {
		count[n]++
		longest = max(longest, int(n))
	}
	clear(t.first[:1<<primary])
	t.more = t.more[:0]
	if longest == 0 {
		return true // who takes a code finds none
	}
	code := 0
	for n := 1; n <= longest; n++ {
		code <<= 1
		next[n] = code
		code += count[n]
	}
	if code != 1<<longest && (code != 1 || longest != 1) {
		return false
	}
	rest := longest - primary // bits of the second tables
	for sym, n := range lens {
		if n == 0 {
			continue
		}
		c := int(bits.Reverse16(uint16(next[n]))) >> (16 - n)
		next[n]++
		e := means[sym]
		if e == 0 {
			continue
		}
		e |= entry(n)
		if int(n) <= primary {
			for i := c; i < 1<<primary; i += 1 << n {
				t.first[i] = e
			}
			continue
		}
		to := &t.first[c&(1<<primary-1)]
		if *to == 0 {
			*to = isSub | entry(len(t.more))<<16 | entry(rest)<<8
			t.more = append(t.more, make([]entry, 1<<rest)...)
		}
		second := t.more[to.value():][:1<<rest]
		for i := c >> primary; i < len(second); i += 1 << (int(n) - primary) {
			second[i] = e
		}
	}
	return true
}

// What codes mean (RFC 1951, 3.2.5 and 3.2.7).
var literals, distances, plain = meanings()

func meanings() (lit, dist, same []entry) {
	for i := range 256 {
		lit = append(lit, isLiteral|entry(i)<<16)
	}
	lit = append(lit, isEnd)
	base := 3
	for i := range 28 {
		extra := max(0, i/4-1)
		lit = append(lit, entry(base)<<16|entry(extra)<<8)
		base += 1 << extra
	}
	lit = append(lit, most<<16, 0, 0)
	base = 1
	for i := range 30 {
		extra := max(0, i/2-1)
		dist = append(dist, entry(base)<<16|entry(extra)<<8)
		base += 1 << extra
	}
	dist = append(dist, 0, 0)
	for i := range 19 {
		same = append(same, isLiteral|entry(i)<<16)
	}
	return lit, dist, same
}
