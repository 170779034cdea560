// Package inflate unpacks zlib's format (RFC 1950, 1951) from memory, in half of the
// time that readers of streams take. Compressed debug information is most of what a
// first question about a file reads.
//
// It trusts nothing that it reads: what is no such format, or has another checksum, is an error.
package inflate

import (
	"encoding/binary"
	"errors"
	"hash"
	"hash/adler32"
	"io"
)

// Errors of Read. What ends early is io.ErrUnexpectedEOF.
var (
	ErrHeader   = errors.New("no zlib header, or one with a dictionary")
	ErrCorrupt  = errors.New("no such code, or a copy from before the start")
	ErrChecksum = errors.New("the checksum is of other bytes")
)

// How far back copies reach, how much is unpacked at once, and how much behind that
// is written when a copy is rounded up, in bytes.
const (
	window  = 32 << 10
	portion = 128 << 10
	longest = 258
	slack   = longest + 16
)

// Reader unpacks one stream. It is not safe for concurrent use.
type Reader struct {
	src  []byte
	at   int    // the next byte of src
	bits uint64 // read of src and not used, the next lowest
	n    uint   // how many

	out  [window + portion + slack]byte // what was unpacked lately; copies are made of its end
	told int                            // how much of out was read
	end  int                            // how much of out there is
	sum  hash.Hash32

	last   bool // the block is the last one
	state  func(*Reader) error
	left   int // bytes of a stored block
	err    error
	lens   [lengthSize]uint32
	dists  [distanceSize]uint32
	clens  [clenSize]uint32
	widths [288 + 32]uint8
}

// NewReader reads a stream. What src has behind its end isn't looked at.
func NewReader(src []byte) *Reader {
	return &Reader{src: src, sum: adler32.New(), state: (*Reader).header}
}

// Read implements io.Reader.
func (r *Reader) Read(b []byte) (int, error) {
	for r.told == r.end {
		if r.err != nil {
			return 0, r.err
		}
		if len(b) == 0 {
			return 0, nil
		}
		r.fill()
	}
	n := copy(b, r.out[r.told:r.end])
	r.told += n
	return n, nil
}

// fill unpacks the next portion.
func (r *Reader) fill() {
	if r.end > window {
		copy(r.out[:], r.out[r.end-window:r.end])
		r.end = window
	}
	from := r.end
	r.told = from
	for r.err == nil && r.end < window+portion {
		r.err = r.state(r)
	}
	_, _ = r.sum.Write(r.out[from:r.end])
	if r.err == io.EOF {
		r.err = r.trailer()
	}
}

// header reads the two bytes of zlib's header.
func (r *Reader) header() error {
	if len(r.src) < 2 {
		return io.ErrUnexpectedEOF
	}
	const deflate, dictionary = 8, 0x20
	if h := r.src[:2]; h[0]&0xf != deflate || h[0]>>4 > 7 || binary.BigEndian.Uint16(h)%31 != 0 || h[1]&dictionary != 0 {
		return ErrHeader
	}
	r.at, r.state = 2, (*Reader).block
	return nil
}

// trailer compares the checksum, in the four bytes behind the last block.
func (r *Reader) trailer() error {
	r.aligned()
	if len(r.src)-r.at < 4 {
		return io.ErrUnexpectedEOF
	}
	if binary.BigEndian.Uint32(r.src[r.at:]) != r.sum.Sum32() {
		return ErrChecksum
	}
	return io.EOF
}

// aligned gives back whole bytes of bits, and drops the others.
func (r *Reader) aligned() {
	r.at -= int(r.n / 8)
	r.bits, r.n = 0, 0
}

// need has at least n bits ready, up to 48; false is the end of the stream.
func (r *Reader) need(n uint) bool {
	for r.n < n {
		if r.at >= len(r.src) {
			return false
		}
		r.bits |= uint64(r.src[r.at]) << r.n
		r.at++
		r.n += 8
	}
	return true
}

func (r *Reader) take(n uint) uint {
	v := r.bits & (1<<n - 1)
	r.bits >>= n
	r.n -= n
	return uint(v)
}

// block reads a block's header.
func (r *Reader) block() error {
	if r.last {
		return io.EOF
	}
	if !r.need(3) {
		return io.ErrUnexpectedEOF
	}
	r.last = r.take(1) == 1
	switch r.take(2) {
	case 0:
		r.aligned()
		if len(r.src)-r.at < 4 {
			return io.ErrUnexpectedEOF
		}
		n, not := binary.LittleEndian.Uint16(r.src[r.at:]), binary.LittleEndian.Uint16(r.src[r.at+2:])
		if n != ^not {
			return ErrCorrupt
		}
		r.at += 4
		r.left, r.state = int(n), (*Reader).stored
		return nil
	case 1:
		w := r.widths[:288]
		for i := range w {
			w[i] = 8
			if i >= 144 && i < 256 {
				w[i] = 9
			} else if i >= 256 && i < 280 {
				w[i] = 7
			}
		}
		d := r.widths[288:]
		for i := range d {
			d[i] = 5
		}
		return r.codes(288, 32)
	case 2:
		return r.dynamic()
	}
	return ErrCorrupt
}

// stored copies of a block that isn't compressed.
func (r *Reader) stored() error {
	n := min(r.left, window+portion-r.end)
	if n > len(r.src)-r.at {
		return io.ErrUnexpectedEOF
	}
	copy(r.out[r.end:], r.src[r.at:r.at+n])
	r.end, r.at, r.left = r.end+n, r.at+n, r.left-n
	if r.left == 0 {
		r.state = (*Reader).block
	}
	return nil
}

// clenOrder is the order in which lengths of the code for lengths come.
var clenOrder = [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// dynamic reads the codes of a block that has its own.
func (r *Reader) dynamic() error {
	if !r.need(14) {
		return io.ErrUnexpectedEOF
	}
	lengths, distances, n := int(r.take(5))+257, int(r.take(5))+1, int(r.take(4))+4
	if lengths > 286 || distances > 30 {
		return ErrCorrupt
	}
	var w [19]uint8
	for _, s := range clenOrder[:n] {
		if !r.need(3) {
			return io.ErrUnexpectedEOF
		}
		w[s] = uint8(r.take(3))
	}
	if !build(r.clens[:], w[:], clenEntries[:], clenBits, false) {
		return ErrCorrupt
	}
	all := r.widths[:lengths+distances]
	for i := 0; i < len(all); {
		r.need(clenBits + 7) // fewer may do at the end
		e := r.clens[r.bits&(clenSize-1)]
		if e&special != 0 {
			return ErrCorrupt
		}
		if uint(e&takes) > r.n {
			return io.ErrUnexpectedEOF
		}
		r.take(uint(e & takes))
		s := uint8(e >> 16)
		if s < 16 {
			all[i] = s
			i++
			continue
		}
		width, least, what := uint(2), 3, uint8(0)
		switch {
		case s == 16 && i == 0:
			return ErrCorrupt
		case s == 16:
			what = all[i-1]
		case s == 17:
			width = 3
		default:
			width, least = 7, 11
		}
		if r.n < width {
			return io.ErrUnexpectedEOF
		}
		k := least + int(r.take(width))
		if k > len(all)-i {
			return ErrCorrupt
		}
		for ; k > 0; k-- {
			all[i] = what
			i++
		}
	}
	if all[256] == 0 {
		return ErrCorrupt
	}
	return r.codes(lengths, distances)
}

// codes makes the block's tables of r.widths, of which the first are for lengths.
func (r *Reader) codes(lengths, distances int) error {
	if !build(r.lens[:], r.widths[:lengths], lengthEntries[:], lengthBits, false) ||
		!build(r.dists[:], r.widths[lengths:lengths+distances], distanceEntries[:], distanceBits, true) {
		return ErrCorrupt
	}
	r.state = (*Reader).compressed
	return nil
}
