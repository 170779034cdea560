package inflate

import (
	"encoding/binary"
	"io"
)

// compressed unpacks the block's codes until it ends or the portion is full. Bits are
// read eight bytes at a time, of which what is not used is read again: at 56 bits and
// more a length and a distance need no others.
func (r *Reader) compressed() error {
	var (
		src    = r.src
		at     = r.at
		bits   = r.bits
		n      = r.n
		out    = &r.out
		end    = r.end
		lens   = &r.lens
		dists  = &r.dists
		err    error
		beyond = uint(0) // bits that were taken to be 0 behind the end of src
	)
	for end < window+portion {
		if at <= len(src)-8 {
			bits |= binary.LittleEndian.Uint64(src[at:]) << (n & 63)
			at += int(63-n) >> 3
			n |= 56
		} else {
			for n <= 56 {
				if at < len(src) {
					bits |= uint64(src[at]) << n
					at++
				} else {
					beyond += 8
				}
				n += 8
			}
		}
		e := lens[bits&(1<<lengthBits-1)]
		if e&literal != 0 {
			// Three such take 33 bits at most.
			out[end] = byte(e >> 16)
			end++
			bits >>= e & 63
			n -= uint(e & 63)
			e = lens[bits&(1<<lengthBits-1)]
			if e&literal != 0 {
				out[end] = byte(e >> 16)
				end++
				bits >>= e & 63
				n -= uint(e & 63)
				e = lens[bits&(1<<lengthBits-1)]
				if e&literal != 0 {
					out[end] = byte(e >> 16)
					end++
					bits >>= e & 63
					n -= uint(e & 63)
					continue
				}
			}
			if at > len(src)-8 {
				continue // more bits are needed; what was looked up is looked up again
			}
			bits |= binary.LittleEndian.Uint64(src[at:]) << (n & 63)
			at += int(63-n) >> 3
			n |= 56
		}
		if e&special != 0 {
			if e&link != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				e = lens[(uint(e>>16)+uint(bits&(1<<(e>>8&15)-1)))&(lengthSize-1)]
				if e&literal != 0 {
					out[end] = byte(e >> 16)
					end++
					bits >>= e & 63
					n -= uint(e & 63)
					continue
				}
			}
			if e&special != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				if e&finish == 0 {
					err = ErrCorrupt
				}
				r.state = (*Reader).block
				break
			}
		}
		length := int(e>>16&0x1ff + uint32(bits&(1<<(e&63)-1))>>(e>>8&15))
		bits >>= e & 63
		n -= uint(e & 63)
		d := dists[bits&(1<<distanceBits-1)]
		if d&special != 0 {
			bits >>= d & 63
			n -= uint(d & 63)
			if d&link != 0 {
				d = dists[(uint(d>>16)+uint(bits&(1<<(d>>8&15)-1)))&(distanceSize-1)]
			}
			if d&special != 0 {
				err = ErrCorrupt
				break
			}
		}
		distance := int(d>>16 + uint32(bits&(1<<(d&63)-1))>>(d>>8&15))
		bits >>= d & 63
		n -= uint(d & 63)
		from := end - distance
		if from < 0 {
			err = ErrCorrupt
			break
		}
		stop := end + length
		if distance >= 8 {
			binary.LittleEndian.PutUint64(out[end:], binary.LittleEndian.Uint64(out[from:]))
			binary.LittleEndian.PutUint64(out[end+8:], binary.LittleEndian.Uint64(out[from+8:]))
			for end += 16; end < stop; end += 8 {
				from += 8
				binary.LittleEndian.PutUint64(out[end:], binary.LittleEndian.Uint64(out[from+8:]))
			}
		} else {
			for ; end < stop; end++ {
				out[end] = out[from]
				from++
			}
		}
		end = stop
	}
	if beyond > n { // some of them were used
		err = io.ErrUnexpectedEOF
	}
	// Whole bytes that were not used are read again.
	n -= min(beyond, n)
	bits &= 1<<(n&63) - 1
	at -= int(n >> 3)
	n &= 7
	r.at, r.bits, r.n, r.end = at, bits&(1<<n-1), n, end
	return err
}
