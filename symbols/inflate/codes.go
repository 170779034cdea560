package inflate

import "encoding/binary"

// codes unpacks a block with codes to b[from:], until the block ends, or until end or somewhat beyond. It returns where
// the bytes end.
//
// After a refill there are 56 bits. A length and its distance take 48 at most, a literal that the first table has takes
// 11, so up to three of those are read between refills.
func (d *decoder) codes(b []byte, from, end int) int {
	const litMask, distMask = 1<<litBits - 1, 1<<distBits - 1
	in, at, acc, have := d.in, d.at, d.bits, d.have
	lit, dist := d.lit.entries, d.dist.entries
	litFirst, distFirst := (*[litMask + 1]uint32)(lit), (*[distMask + 1]uint32)(dist)
	to := from
	if end+slack > len(b) {
		d.bad = true
		return from
	}
	for to < end {
		if at+8 <= len(in) {
			acc |= binary.LittleEndian.Uint64(in[at:]) << (have & 63)
		} else if at > len(in)+8 {
			d.bad = true
			break
		} else {
			acc |= d.tail(at) << (have & 63)
		}
		at += int(63-have) >> 3
		have |= 56

		e := litFirst[acc&litMask]
		if e&literal != 0 {
			n := uint(e & codeMask)
			acc, have = acc>>n, have-n
			b[to] = byte(e >> 16)
			to++
			if e = litFirst[acc&litMask]; e&literal != 0 {
				n = uint(e & codeMask)
				acc, have = acc>>n, have-n
				b[to] = byte(e >> 16)
				to++
				if e = litFirst[acc&litMask]; e&literal != 0 {
					n = uint(e & codeMask)
					acc, have = acc>>n, have-n
					b[to] = byte(e >> 16)
					to++
					continue
				}
			}
			if have < 48 {
				continue // for more bits
			}
		}
		if e&special != 0 {
			if e&isLink != 0 {
				n := uint(e & 0xff)
				acc, have = acc>>n, have-n
				e = lit[uint64(e>>16)+acc&(1<<(e>>8&codeMask)-1)]
				if e&literal != 0 {
					n = uint(e & 0xff)
					acc, have = acc>>n, have-n
					b[to] = byte(e >> 16)
					to++
					continue
				}
			}
			if e&special != 0 {
				if e&isEnd == 0 {
					d.bad = true
					break
				}
				n := uint(e & 0xff)
				acc, have = acc>>n, have-n
				d.endBlock()
				break
			}
		}
		n := uint(e & 0x3f)
		length := int(e>>16) + int(acc&(1<<n-1)>>(e>>8&codeMask))
		acc, have = acc>>n, have-n

		e = distFirst[acc&distMask]
		if e&special != 0 {
			if e&isLink == 0 {
				d.bad = true
				break
			}
			n = uint(e & 0xff)
			acc, have = acc>>n, have-n
			if e = dist[uint64(e>>16)+acc&(1<<(e>>8&codeMask)-1)]; e&special != 0 {
				d.bad = true
				break
			}
		}
		n = uint(e & 0x3f)
		back := int(e>>16) + int(acc&(1<<n-1)>>(e>>8&codeMask))
		acc, have = acc>>n, have-n
		if back > to {
			d.bad = true
			break
		}
		src, stop := to-back, to+length
		switch {
		case back >= length && length > 32:
			copy(b[to:stop], b[src:])
		case back >= 8:
			for ; to < stop; to, src = to+8, src+8 {
				binary.LittleEndian.PutUint64(b[to:], binary.LittleEndian.Uint64(b[src:]))
			}
		default:
			for ; to < stop; to, src = to+1, src+1 {
				b[to] = b[src]
			}
		}
		to = stop
	}
	d.at, d.bits, d.have = at, acc, have
	return to
}
