package symbols

import (
	"encoding/binary"
	"errors"
	"hash"
	"hash/adler32"
	"io"
	"math/bits"
)

// inflater reads zlib's format (RFC 1950, 1951) from memory, at about twice the speed
// of readers that take their input from anywhere: sections of debug information are one
// stream, that only one thread can read. The checksum at the end is compared.
type inflater struct {
	in   []byte
	pos  int
	bits uint64
	n    uint // of bits
	buf  []byte
	from int // what has not been read yet starts in buf
	to   int // and ends

	final  bool // the block is the last
	inside bool // a compressed block
	stored int  // bytes of a stored block that are left
	done   bool
	sum    hash.Hash32
	err    error

	lit, dist         []uint32
	litMore, distMore uint64 // masks of what is behind the first bits of longer codes
}

const (
	inflateWindow = 32 << 10
	inflateBuffer = 256 << 10
	litBits       = 11
	distBits      = 9
	longestMatch  = 258
)

// Entries of tables: bits of the code, extra bits, what it is, and its value.
const (
	entryLiteral = iota << 8
	entryBase
	entryEnd
	entryLonger // value is where the table for the further bits starts
	entryBad
	entryKind = 0xff << 8
)

var errInflate = errors.New("damaged compressed data")

// newInflater begins to read; an error says that the header is not zlib's.
func newInflater(in []byte) (*inflater, error) {
	if len(in) < 6 || in[0]&15 != 8 || (int(in[0])<<8|int(in[1]))%31 != 0 || in[1]&0x20 != 0 {
		return nil, errInflate
	}
	return &inflater{in: in, pos: 2, buf: make([]byte, inflateWindow+inflateBuffer), from: inflateWindow, to: inflateWindow, sum: adler32.New()}, nil
}

// Read implements io.Reader.
func (z *inflater) Read(b []byte) (int, error) {
	for z.from == z.to {
		switch {
		case z.err != nil:
			return 0, z.err
		case z.done:
			return 0, io.EOF
		}
		z.fill()
	}
	n := copy(b, z.buf[z.from:z.to])
	z.from += n
	return n, nil
}

// fill makes more bytes.
func (z *inflater) fill() {
	if z.to > inflateWindow {
		copy(z.buf, z.buf[z.to-inflateWindow:z.to])
	}
	z.from, z.to = inflateWindow, inflateWindow
	for z.err == nil && !z.done && z.to < len(z.buf)-longestMatch {
		switch {
		case z.inside:
			z.err = z.block()
		case z.stored > 0:
			n := min(z.stored, len(z.buf)-longestMatch-z.to, len(z.in)-z.pos)
			if n == 0 {
				z.err = io.ErrUnexpectedEOF
			}
			z.to += copy(z.buf[z.to:], z.in[z.pos:z.pos+n])
			z.pos, z.stored = z.pos+n, z.stored-n
		case z.final:
			z.done = true
		default:
			z.err = z.header()
		}
	}
	z.sum.Write(z.buf[inflateWindow:z.to])
	if z.done {
		z.align()
		if len(z.in)-z.pos < 4 || binary.BigEndian.Uint32(z.in[z.pos:]) != z.sum.Sum32() {
			z.err = errInflate
		}
	}
}

// refill has at least 56 bits, or all that there are.
func (z *inflater) refill() {
	if z.pos+8 <= len(z.in) {
		z.bits |= binary.LittleEndian.Uint64(z.in[z.pos:]) << z.n
		z.pos += int((63 - z.n) >> 3)
		z.n |= 56
		return
	}
	for z.n <= 56 && z.pos < len(z.in) {
		z.bits |= uint64(z.in[z.pos]) << z.n
		z.pos++
		z.n += 8
	}
}

// take takes up to 16 bits.
func (z *inflater) take(n uint) (int, error) {
	if z.n < n {
		if z.refill(); z.n < n {
			return 0, io.ErrUnexpectedEOF
		}
	}
	v := int(z.bits & (1<<n - 1))
	z.bits >>= n
	z.n -= n
	return v, nil
}

// align goes on at the next whole byte.
func (z *inflater) align() {
	z.pos -= int(z.n / 8)
	z.bits, z.n = 0, 0
}

// header begins a block.
func (z *inflater) header() error {
	h, err := z.take(3)
	if err != nil {
		return err
	}
	z.final = h&1 != 0
	switch h >> 1 {
	case 0:
		z.align()
		if len(z.in)-z.pos < 4 {
			return io.ErrUnexpectedEOF
		}
		n := binary.LittleEndian.Uint16(z.in[z.pos:])
		if n != ^binary.LittleEndian.Uint16(z.in[z.pos+2:]) {
			return errInflate
		}
		z.pos += 4
		z.stored = int(n)
		return nil
	case 1:
		var l [288]byte
		for i := range l {
			switch {
			case i < 144:
				l[i] = 8
			case i < 256:
				l[i] = 9
			case i < 280:
				l[i] = 7
			default:
				l[i] = 8
			}
		}
		var d [30]byte
		for i := range d {
			d[i] = 5
		}
		return z.tables(l[:], d[:])
	case 2:
		return z.dynamic()
	}
	return errInflate
}

// dynamic reads the lengths of a block's codes.
func (z *inflater) dynamic() error {
	n, err := z.take(14)
	if err != nil {
		return err
	}
	lits, dists, lens := n&31+257, n>>5&31+1, n>>10+4
	if lits > 286 || dists > 30 {
		return errInflate
	}
	var l [19]byte
	for _, i := range []int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}[:lens] {
		v, err := z.take(3)
		if err != nil {
			return err
		}
		l[i] = byte(v)
	}
	var room [1 << 7]uint32
	table, _, ok := makeTable(room[:0], l[:], 7, func(i int) uint32 { return uint32(i) << 16 })
	if !ok {
		return errInflate
	}
	var all [286 + 30]byte
	for i := 0; i < lits+dists; {
		z.refill()
		e := table[z.bits&(1<<7-1)]
		if e&entryKind == entryBad || z.n < uint(e&15) {
			return errInflate
		}
		z.bits >>= e & 15
		z.n -= uint(e & 15)
		v := byte(e >> 16)
		if v < 16 {
			all[i] = v
			i++
			continue
		}
		again, base, value := uint(2), 3, byte(0)
		switch {
		case v == 16 && i == 0:
			return errInflate
		case v == 16:
			value = all[i-1]
		case v == 17:
			again = 3
		default:
			again, base = 7, 11
		}
		more, err := z.take(again)
		if err != nil || i+base+more > lits+dists {
			return errInflate
		}
		for range base + more {
			all[i] = value
			i++
		}
	}
	return z.tables(all[:lits], all[lits:lits+dists])
}

// tables makes the tables of a block.
func (z *inflater) tables(lit, dist []byte) error {
	ok, ok2 := false, false
	z.lit, z.litMore, ok = makeTable(z.lit[:0], lit, litBits, func(i int) uint32 {
		switch {
		case i < 256:
			return uint32(i)<<16 | entryLiteral
		case i == 256:
			return entryEnd
		case i < 265:
			return uint32(i-254)<<16 | entryBase
		case i < 285:
			extra := uint32(i-261) / 4
			return (3+(4+uint32(i-261)%4)<<extra)<<16 | entryBase | extra<<4
		case i == 285:
			return 258<<16 | entryBase
		}
		return entryBad
	})
	z.dist, z.distMore, ok2 = makeTable(z.dist[:0], dist, distBits, func(i int) uint32 {
		if i < 4 {
			return uint32(i+1)<<16 | entryBase
		}
		extra := uint32(i-2) / 2
		return (1+(2+uint32(i)%2)<<extra)<<16 | entryBase | extra<<4
	})
	if !ok || !ok2 {
		return errInflate
	}
	z.inside = true
	return nil
}

// makeTable makes the table of codes of the given lengths: 1<<width entries by the
// first bits, and behind them those for longer codes. What is no code is entryBad.
func makeTable(t []uint32, lengths []byte, width uint, entry func(int) uint32) (table []uint32, more uint64, ok bool) {
	var count [16]int
	longest := uint(0)
	for _, n := range lengths {
		count[n]++
		longest = max(longest, uint(n))
	}
	count[0] = 0
	var next [17]int
	for n := 1; n < 16; n++ {
		next[n+1] = (next[n] + count[n]) << 1
		if next[n]+count[n] > 1<<n {
			return t, 0, false // more codes than there are
		}
	}
	for range 1 << width {
		t = append(t, entryBad|1)
	}
	for i, n := range lengths {
		if n == 0 {
			continue
		}
		code := uint(bits.Reverse16(uint16(next[n])) >> (16 - n))
		next[n]++
		e := entry(i) | uint32(n)
		if uint(n) <= width {
			for at := code; at < 1<<width; at += 1 << n {
				t[at] = e
			}
			continue
		}
		first := code & (1<<width - 1)
		if t[first]&entryKind != entryLonger {
			t[first] = uint32(len(t))<<16 | entryLonger
			for range 1 << (longest - width) {
				t = append(t, entryBad|1)
			}
		}
		for at := code >> width; at < 1<<(longest-width); at += 1 << (uint(n) - width) {
			t[uint(t[first]>>16)+at] = e
		}
	}
	if longest > width {
		more = 1<<(longest-width) - 1
	}
	return t, more, len(t) < 1<<16
}

// block goes on in a compressed block, to its end or that of the buffer.
func (z *inflater) block() error {
	in, lit, dist, buf := z.in, z.lit, z.dist, z.buf
	b, n, pos, to := z.bits, z.n, z.pos, z.to
	litMore, distMore := z.litMore, z.distMore
	err := errInflate
loop:
	for {
		if to >= len(buf)-longestMatch {
			err = nil
			break
		}
		if n < 48 {
			if pos+8 <= len(in) {
				b |= binary.LittleEndian.Uint64(in[pos:]) << (n & 63)
				pos += int((63 - n) >> 3)
				n |= 56
			} else {
				for n <= 56 && pos < len(in) {
					b |= uint64(in[pos]) << (n & 63)
					pos++
					n += 8
				}
			}
		}
		e := lit[b&(1<<litBits-1)]
		if e&entryKind == entryLonger {
			e = lit[uint64(e>>16)+b>>litBits&litMore]
		}
		used := uint(e & 15)
		if n < used {
			break
		}
		b >>= used & 63
		n -= used
		switch e & entryKind {
		case entryLiteral:
			buf[to] = byte(e >> 16)
			to++
			continue
		case entryEnd:
			z.inside = false
			err = nil
			break loop
		case entryBase:
		default:
			break loop
		}
		extra := uint(e >> 4 & 15)
		if n < extra {
			break
		}
		length := int(e>>16) + int(b&(1<<(extra&63)-1))
		b >>= extra & 63
		n -= extra
		e = dist[b&(1<<distBits-1)]
		if e&entryKind == entryLonger {
			e = dist[uint64(e>>16)+b>>distBits&distMore]
		}
		used, extra = uint(e&15), uint(e>>4&15)
		if e&entryKind != entryBase || n < used+extra {
			break
		}
		b >>= used & 63
		at := to - int(e>>16) - int(b&(1<<(extra&63)-1))
		b >>= extra & 63
		n -= used + extra
		if at < 0 {
			break
		}
		for end := to + length; to < end; { // what is copied grows as it repeats
			to += copy(buf[to:end], buf[at:to])
		}
	}
	z.bits, z.n, z.pos, z.to = b, n, pos, to
	return err
}
