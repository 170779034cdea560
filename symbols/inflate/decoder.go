package inflate

import "encoding/binary"

// decoder reads the blocks of a deflate stream.
type decoder struct {
	in   []byte
	at   int    // of the next byte to go into bits
	bits uint64 // the next bits, the first lowest. Above count there may be more, which at includes again
	have uint   // how many of them count

	state   state
	final   bool // the block is the last one
	stored  int  // bytes left of a stored block
	lit     table
	dist    table
	lengths [maxLit + maxDist]uint8
	bad     bool
}

type state uint8

const (
	atHeader state = iota
	inStored
	inCodes
	atEnd
)

func (d *decoder) ended() bool { return d.state == atEnd }

// rest returns the bytes behind the stream.
func (d *decoder) rest() []byte {
	at := d.at - int(d.have>>3)
	if at < 0 || at > len(d.in) {
		return nil
	}
	return d.in[at:]
}

// refill makes have at least 56. Behind the end of the stream there are zeros, not many.
func (d *decoder) refill() {
	var w uint64
	switch {
	case d.at+8 <= len(d.in):
		w = binary.LittleEndian.Uint64(d.in[d.at:])
	case d.at > len(d.in)+8:
		d.bad = true
	default:
		w = d.tail(d.at)
	}
	d.bits |= w << (d.have & 63)
	d.at += int(63-d.have) >> 3
	d.have |= 56
}

// tail returns what is left of the stream from a position close to its end, and zeros.
func (d *decoder) tail(at int) uint64 {
	var b [8]byte
	if at < len(d.in) {
		copy(b[:], d.in[at:])
	}
	return binary.LittleEndian.Uint64(b[:])
}

// take returns the next n bits, at most 16 of those that refill has brought.
func (d *decoder) take(n uint) uint {
	v := uint(d.bits) & (1<<n - 1)
	d.bits >>= n
	d.have -= n
	return v
}

// fill unpacks to b[from:], until end or somewhat beyond, and returns where the bytes end. b[:from] are the bytes
// before, as far as copies may reach back. b must have slack bytes beyond end.
func (d *decoder) fill(b []byte, from, end int) int {
	for from < end && !d.bad && d.state != atEnd {
		switch d.state {
		case atHeader:
			d.header()
		case inStored:
			n := min(d.stored, end-from, len(d.in)-d.at)
			if n <= 0 && d.stored > 0 {
				d.bad = true
				break
			}
			copy(b[from:from+n], d.in[d.at:])
			from, d.at, d.stored = from+n, d.at+n, d.stored-n
			if d.stored == 0 {
				d.endBlock()
			}
		case inCodes:
			from = d.codes(b, from, end)
		}
	}
	return from
}

func (d *decoder) endBlock() {
	if d.state = atHeader; d.final {
		d.state = atEnd
	}
}

// header reads the header of a block.
func (d *decoder) header() {
	d.refill()
	d.final = d.take(1) == 1
	switch d.take(2) {
	case 0:
		d.take(d.have & 7)
		d.at -= int(d.have >> 3) // back to whole bytes
		d.bits, d.have = 0, 0
		if d.at < 0 || d.at+4 > len(d.in) {
			d.bad = true
			return
		}
		n := binary.LittleEndian.Uint16(d.in[d.at:])
		d.bad = n != ^binary.LittleEndian.Uint16(d.in[d.at+2:])
		d.at, d.stored, d.state = d.at+4, int(n), inStored
	case 1:
		for i := range 288 {
			d.lengths[i] = [...]uint8{8, 9, 7, 8}[place(i, 144, 256, 280)]
		}
		d.bad = !d.lit.make(d.lengths[:288], litBits, litSymbols[:], false)
		for i := range 32 {
			d.lengths[i] = 5
		}
		d.bad = !d.dist.make(d.lengths[:32], distBits, distSymbols[:], false) || d.bad
		d.state = inCodes
	case 2:
		d.trees()
		d.state = inCodes
	default:
		d.bad = true
	}
}

// place returns how many of the limits a number has reached.
func place(i int, limits ...int) (n int) {
	for _, l := range limits {
		if i >= l {
			n++
		}
	}
	return n
}

// trees reads the codes of a block that has its own.
func (d *decoder) trees() {
	d.refill()
	nlit, ndist, n := int(d.take(5))+257, int(d.take(5))+1, int(d.take(4))+4
	if nlit > 286 || ndist > 30 {
		d.bad = true
		return
	}
	var lens [len(lengthOrder)]uint8
	for i := range n {
		if d.have < 3 {
			d.refill()
		}
		lens[lengthOrder[i]] = uint8(d.take(3))
	}
	if !d.dist.make(lens[:], 7, lengthSymbols[:], false) { // made anew below
		d.bad = true
		return
	}
	for i := 0; i < nlit+ndist && !d.bad; {
		d.refill()
		e := d.dist.entries[d.bits&(1<<7-1)]
		d.take(uint(e & 0xff))
		sym := e >> 16
		if sym < 16 {
			d.lengths[i] = uint8(sym)
			i++
			continue
		}
		times, value := 0, uint8(0)
		switch sym {
		case 16:
			if i == 0 {
				d.bad = true
				return
			}
			times, value = 3+int(d.take(2)), d.lengths[i-1]
		case 17:
			times = 3 + int(d.take(3))
		default:
			times = 11 + int(d.take(7))
		}
		if i+times > nlit+ndist {
			d.bad = true
			return
		}
		for range times {
			d.lengths[i] = value
			i++
		}
	}
	d.bad = d.bad || d.lengths[endOfBlock] == 0 || !d.lit.make(d.lengths[:nlit], litBits, litSymbols[:], false) ||
		!d.dist.make(d.lengths[nlit:nlit+ndist], distBits, distSymbols[:], true)
}

// lengthOrder is the order in which the lengths of the code for lengths come.
var lengthOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
