// Package inflate unpacks zlib's format (RFC 1950, 1951) from bytes that are all
// there, as those of a mapped file are: three times as fast as compress/zlib,
// which reads them one by one from whatever gives them.
package inflate

import (
	"encoding/binary"
	"errors"
	"hash"
	"hash/adler32"
	"io"
)

// ErrFormat says that the bytes are not what zlib's format has.
var ErrFormat = errors.New("not in zlib's format")

const (
	window  = 32 << 10  // how far back a match reaches
	most    = 258       // bytes of a match
	overrun = 8         // bytes that a copy writes behind its end
	chunk   = 256 << 10 // what is unpacked at once, about
)

// Reader gives what is packed. It is for one goroutine.
type Reader struct {
	src []byte
	pos int    // of the next byte of src that isn't in bits
	bb  uint64 // bits that are read next, the lowest first
	n   int    // how many there are; below 0 more were taken than there are

	buf    []byte
	behind int // how many bytes were unpacked before those from window on, up to window
	from   int // what is in buf from here
	to     int // up to here is to be given
	sum    hash.Hash32

	state      state
	last       bool // the block is the last one
	left       int  // bytes of a stored block
	lits, dist table
	err        error
}

type state uint8

const (
	atStart state = iota
	atBlock
	inStored
	inCodes
	atEnd
)

// NewReader unpacks src, which must not change meanwhile.
func NewReader(src []byte) *Reader {
	return &Reader{src: src, buf: make([]byte, window+chunk+most+overrun), from: window, to: window, sum: adler32.New()}
}

// Read implements io.Reader. The last error is io.EOF when the checksum was right,
// io.ErrUnexpectedEOF when src is cut short, or ErrFormat.
func (r *Reader) Read(b []byte) (int, error) {
	for r.from == r.to {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(b, r.buf[r.from:r.to])
	r.from += n
	return n, nil
}

// WriteTo implements io.WriterTo.
func (r *Reader) WriteTo(w io.Writer) (total int64, err error) {
	for {
		if r.from < r.to {
			n, err := w.Write(r.buf[r.from:r.to])
			total += int64(n)
			r.from += n
			if err != nil {
				return total, err
			}
		}
		if r.err == io.EOF {
			return total, nil
		} else if r.err != nil {
			return total, r.err
		}
		r.fill()
	}
}

// fill unpacks the next chunk; all of the one before was given.
func (r *Reader) fill() {
	copy(r.buf, r.buf[r.to-window:r.to])
	r.behind = min(window, r.behind+r.to-window)
	r.from, r.to = window, window
	for r.err == nil && r.to < window+chunk {
		switch r.state {
		case atStart:
			r.header()
		case atBlock:
			if r.last {
				r.state = atEnd
				continue
			}
			r.block()
		case inStored:
			r.stored()
		case inCodes:
			r.codes()
		case atEnd:
			r.trailer()
		}
		if r.n < 0 {
			r.fail(io.ErrUnexpectedEOF)
		}
	}
	switch r.err {
	case nil:
		r.sum.Write(r.buf[window:r.to])
	case io.EOF:
	default:
		r.to = r.from // what is damaged is given to nobody
	}
}

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// refill makes 56 bits or more, as far as there are.
func (r *Reader) refill() {
	if r.pos+8 <= len(r.src) {
		r.bb |= binary.LittleEndian.Uint64(r.src[r.pos:]) << uint(r.n)
		r.pos += (63 - r.n) >> 3
		r.n |= 56
		return
	}
	for r.n >= 0 && r.n < 56 && r.pos < len(r.src) {
		r.bb |= uint64(r.src[r.pos]) << uint(r.n)
		r.pos++
		r.n += 8
	}
}

// take takes k bits of those that refill made.
func (r *Reader) take(k int) int {
	v := r.bb & (1<<uint(k) - 1)
	r.bb >>= uint(k)
	r.n -= k
	return int(v)
}

func (r *Reader) header() {
	r.refill()
	method, flags := r.take(8), r.take(8)
	if r.n >= 0 && (method&15 != 8 || method>>4 > 7 || (method<<8|flags)%31 != 0 || flags&0x20 != 0) {
		r.fail(ErrFormat)
	}
	r.state = atBlock
}

// align goes to the next byte of src, and puts back what was read ahead.
func (r *Reader) align() {
	r.take(r.n & 7)
	r.pos -= r.n >> 3
	r.bb, r.n = 0, 0
}

// trailer holds the checksum against what was unpacked; nothing of it is given
// before that in the last chunk.
func (r *Reader) trailer() {
	if r.n < 0 {
		return
	}
	r.align()
	if len(r.src)-r.pos < 4 {
		r.fail(io.ErrUnexpectedEOF)
		return
	}
	r.sum.Write(r.buf[window:r.to])
	if r.sum.Sum32() != binary.BigEndian.Uint32(r.src[r.pos:]) {
		r.fail(ErrFormat)
		return
	}
	r.fail(io.EOF)
}

func (r *Reader) block() {
	r.refill()
	r.last = r.take(1) != 0
	switch r.take(2) {
	case 0:
		if r.n < 0 {
			return
		}
		r.align()
		if len(r.src)-r.pos < 4 {
			r.fail(io.ErrUnexpectedEOF)
			return
		}
		n, not := binary.LittleEndian.Uint16(r.src[r.pos:]), binary.LittleEndian.Uint16(r.src[r.pos+2:])
		if n != ^not {
			r.fail(ErrFormat)
			return
		}
		r.pos += 4
		r.left, r.state = int(n), inStored
	case 1:
		var lens [288]uint8
		for i := range lens {
			switch {
			case i < 144:
				lens[i] = 8
			case i < 256:
				lens[i] = 9
			case i < 280:
				lens[i] = 7
			default:
				lens[i] = 8
			}
		}
		r.lits.build(lens[:], literals, litBits)
		for i := range 32 {
			lens[i] = 5
		}
		r.dist.build(lens[:32], distances, distBits)
		r.state = inCodes
	case 2:
		if !r.dynamic() && r.n >= 0 {
			r.fail(ErrFormat)
		}
		r.state = inCodes
	default:
		if r.n >= 0 {
			r.fail(ErrFormat)
		}
	}
}

// dynamic reads the codes of a block. ok is false where they are none.
func (r *Reader) dynamic() (ok bool) {
	order := [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	nlit, ndist, nlen := r.take(5)+257, r.take(5)+1, r.take(4)+4
	if nlit > 286 || ndist > 30 {
		return false
	}
	var first [19]uint8
	for _, at := range order[:nlen] {
		r.refill()
		first[at] = uint8(r.take(3))
	}
	var t table
	if !t.build(first[:], plain, lenBits) {
		return false
	}
	var lens [286 + 30]uint8
	for i := 0; i < nlit+ndist; {
		r.refill()
		e := t.first[r.bb&(1<<lenBits-1)]
		if e.bits() == 0 || r.n < 0 {
			return false
		}
		r.take(e.bits())
		again, v := 1, uint8(e.value())
		switch v {
		case 16:
			if i == 0 {
				return false
			}
			again, v = 3+r.take(2), lens[i-1]
		case 17:
			again, v = 3+r.take(3), 0
		case 18:
			again, v = 11+r.take(7), 0
		}
		if i+again > nlit+ndist {
			return false
		}
		for range again {
			lens[i] = v
			i++
		}
	}
	return r.lits.build(lens[:nlit], literals, litBits) && r.dist.build(lens[nlit:nlit+ndist], distances, distBits)
}

func (r *Reader) stored() {
	n := min(r.left, window+chunk-r.to, len(r.src)-r.pos)
	copy(r.buf[r.to:], r.src[r.pos:r.pos+n])
	r.to, r.pos, r.left = r.to+n, r.pos+n, r.left-n
	switch {
	case r.left == 0:
		r.state = atBlock
	case r.pos == len(r.src):
		r.fail(io.ErrUnexpectedEOF)
	}
}

// codes unpacks until the block ends or the chunk is full. It is what takes the
// time: what it changes is in variables.
func (r *Reader) codes() {
	src, buf := r.src, r.buf
	pos, bb, n, to := r.pos, r.bb, r.n, r.to
	lits, dist := &r.lits, &r.dist
	oldest := window - min(r.behind, window)
	err := error(nil)
loop:
	for to < window+chunk {
		if pos+8 <= len(src) {
			bb |= binary.LittleEndian.Uint64(src[pos:]) << (uint(n) & 63)
			pos += (63 - n) >> 3
			n |= 56
		} else {
			for ; n < 56 && pos < len(src); n += 8 {
				bb |= uint64(src[pos]) << (uint(n) & 63)
				pos++
			}
		}
		e := lits.first[bb&(1<<litBits-1)]
		if e&isLiteral != 0 { // two more are within 56 bits with their codes
			bb >>= e & 63
			n -= e.bits()
			buf[to] = byte(e >> 16)
			to++
			if e = lits.first[bb&(1<<litBits-1)]; e&isLiteral != 0 {
				bb >>= e & 63
				n -= e.bits()
				buf[to] = byte(e >> 16)
				to++
				if n < 0 {
					break
				}
				continue
			}
			if n < 48 && pos < len(src) {
				continue // what follows may be longer than what there is
			}
		}
		if e&isSub != 0 {
			e = lits.more[e.value()+int(bb>>litBits&(1<<e.extra()-1))]
		}
		bb >>= e & 63
		if n -= e.bits(); n < 0 || e == 0 {
			break
		}
		if e&isLiteral != 0 {
			buf[to] = byte(e >> 16)
			to++
			continue
		}
		if e&isEnd != 0 {
			r.state = atBlock
			break
		}
		length := e.value() + int(bb&(1<<e.extra()-1))
		bb >>= e.extra()
		n -= int(e.extra())

		d := dist.first[bb&(1<<distBits-1)]
		if d&isSub != 0 {
			d = dist.more[d.value()+int(bb>>distBits&(1<<d.extra()-1))]
		}
		bb >>= d & 63
		n -= d.bits()
		back := d.value() + int(bb&(1<<d.extra()-1))
		bb >>= d.extra()
		n -= int(d.extra())
		if e = d; n < 0 || d == 0 {
			break
		}
		at := to - back
		if at < 0 || at < oldest {
			err = ErrFormat
			break loop
		}
		end := to + length
		switch {
		case back >= 8:
			for to < end {
				binary.LittleEndian.PutUint64(buf[to:], binary.LittleEndian.Uint64(buf[at:]))
				to, at = to+8, at+8
			}
			to = end
		case back == 1:
			v := buf[at]
			for i := range buf[to:end] {
				buf[to+i] = v
			}
			to = end
		default:
			for ; to < end; to, at = to+1, at+1 {
				buf[to] = buf[at]
			}
		}
	}
	if n >= 0 && r.state == inCodes && err == nil && to < window+chunk {
		err = ErrFormat // a code that there isn't
	}
	if err != nil {
		r.fail(err)
	}
	r.pos, r.bb, r.n, r.to = pos, bb, n, to
}
