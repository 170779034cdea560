package plan

import "math/bits"

// ByteSet is a set of byte values.
type ByteSet [4]uint64

// AnyByte has every value.
func AnyByte() ByteSet { return ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)} }

// OneByte has the given values.
func OneByte(values ...byte) ByteSet {
	var s ByteSet
	for _, b := range values {
		s[b>>6] |= 1 << (b & 63)
	}
	return s
}

// Has reports whether b is in the set.
func (s ByteSet) Has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// next is the lowest member that is at least b.
func (s ByteSet) next(b int) (int, bool) {
	for b < 256 {
		if w := s[b>>6] >> (b & 63); w != 0 {
			return b + bits.TrailingZeros64(w), true
		}
		b = b&^63 + 64
	}
	return 0, false
}

// flip returns the set with the top bit of every member inverted.
func (s ByteSet) flip() ByteSet { return ByteSet{s[2], s[3], s[0], s[1]} }

// Want describes the address of a detour.
type Want struct {
	Lo, Hi uint64 // it lies in [Lo, Hi]
	Size   int    // so many bytes from it on are to be free
	// Base is the address at which the jump ends: the displacement is the detour's address
	// - Base. Rel says which values each byte of the displacement, lowest first, may have.
	Base uint64
	Rel  [4]ByteSet
	// Near is where the detour should preferably lie.
	Near uint64
}

// Reach finds free addresses for detours.
type Reach interface {
	// Find takes the room that w asks for. It does not return the same room again.
	Find(w Want) (addr uint64, ok bool)
}

// bias turns a signed displacement into a number that counts up from the lowest.
const bias = 1 << 31

// Next returns the lowest address from a on that w's displacement allows, within Lo and Hi,
// whether it is free or not.
func (w *Want) Next(a uint64) (uint64, bool) {
	a = max(a, w.Lo)
	if w.Base > bias {
		a = max(a, w.Base-bias)
	}
	y := a - w.Base + bias
	if a > w.Hi || y >= 1<<32 {
		return 0, false
	}
	y, ok := nextDigits(uint32(y), w.Rel)
	if !ok {
		return 0, false
	}
	a = w.Base + y - bias
	return a, a >= w.Lo && a <= w.Hi
}

// nextDigits returns the lowest number from y on whose base-256 digits are in the sets. The
// highest digit is counted from the lowest displacement.
func nextDigits(y uint32, sets [4]ByteSet) (uint64, bool) {
	sets[3] = sets[3].flip()
	d := [4]int{int(byte(y)), int(byte(y >> 8)), int(byte(y >> 16)), int(byte(y >> 24))}
	i := 3
	for ; i >= 0; i-- {
		m, ok := sets[i].next(d[i])
		if ok && m == d[i] {
			continue
		}
		for !ok {
			if i++; i > 3 {
				return 0, false
			}
			m, ok = sets[i].next(d[i] + 1)
		}
		d[i] = m
		for i--; i >= 0; i-- {
			if d[i], ok = sets[i].next(0); !ok {
				return 0, false
			}
		}
		break
	}
	return uint64(d[0]) | uint64(d[1])<<8 | uint64(d[2])<<16 | uint64(d[3])<<24, true
}

// Range is [Lo, Hi).
type Range struct{ Lo, Hi uint64 }

// Gaps is a Reach that only checks whether there is room: it takes nothing. It is for listings,
// where each site is planned as if it were the only one. The ranges are free addresses in
// order.
type Gaps []Range

// Find implements Reach. It returns the first fitting address, in the gap nearest to w.Near, or
// else farther out.
func (g Gaps) Find(w Want) (uint64, bool) {
	best, bestDist, ok := uint64(0), ^uint64(0), false
	for _, r := range g {
		a, found := w.Next(r.Lo)
		if !found || a+uint64(w.Size) > r.Hi || a+uint64(w.Size) < a {
			continue
		}
		d := max(a, w.Near) - min(a, w.Near)
		if d < bestDist {
			best, bestDist, ok = a, d, true
		}
	}
	return best, ok
}
