// Package dwread reads numbers and strings in the encodings of DWARF and call frame
// information: little-endian, LEB128, with lengths and offsets of two formats.
package dwread

import (
	"bytes"
	"encoding/binary"
)

// Reader reads values from bytes. A read past the end returns zero and sets Bad, which stays set,
// so one check after several reads suffices. The zero Reader has nothing to read. A Reader is not
// safe for concurrent use.
type Reader struct {
	B   []byte
	At  uint64 // offset of the next byte; never past len(B)
	Bad bool
}

// At returns a Reader of b at off. If off is past the end, the Reader is Bad.
func At(b []byte, off uint64) Reader {
	if off > uint64(len(b)) {
		return Reader{B: b, At: uint64(len(b)), Bad: true}
	}
	return Reader{B: b, At: off}
}

// Left returns how many bytes remain.
func (r *Reader) Left() uint64 { return uint64(len(r.B)) - r.At }

// Take returns the next n bytes, which alias B, or nil if fewer remain.
func (r *Reader) Take(n uint64) []byte {
	if n > r.Left() {
		r.Bad, r.At = true, uint64(len(r.B))
		return nil
	}
	out := r.B[r.At : r.At+n : r.At+n]
	r.At += n
	return out
}

// Skip passes over n bytes.
func (r *Reader) Skip(n uint64) { r.Take(n) }

// U8 reads a byte.
func (r *Reader) U8() uint8 {
	if r.At >= uint64(len(r.B)) {
		r.Bad = true
		return 0
	}
	v := r.B[r.At]
	r.At++
	return v
}

// U16 reads a number of 2 bytes.
func (r *Reader) U16() uint64 {
	if b := r.Take(2); b != nil {
		return uint64(binary.LittleEndian.Uint16(b))
	}
	return 0
}

// U24 reads a number of 3 bytes (DW_FORM_strx3).
func (r *Reader) U24() uint64 {
	if b := r.Take(3); b != nil {
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
	}
	return 0
}

// U32 reads a number of 4 bytes.
func (r *Reader) U32() uint64 {
	if b := r.Take(4); b != nil {
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// U64 reads a number of 8 bytes.
func (r *Reader) U64() uint64 {
	if b := r.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uint reads a number of 1, 2, 4 or 8 bytes. Another size sets Bad.
func (r *Reader) Uint(size int) uint64 {
	switch size {
	case 1:
		return uint64(r.U8())
	case 2:
		return r.U16()
	case 4:
		return r.U32()
	case 8:
		return r.U64()
	}
	r.Bad = true
	return 0
}

// Offset reads a section offset, in the DWARF format in use.
func (r *Reader) Offset(dwarf64 bool) uint64 {
	if dwarf64 {
		return r.U64()
	}
	return r.U32()
}

// Uleb reads an unsigned LEB128 number (DWARF 5, 7.6). Bits above 64 are dropped.
func (r *Reader) Uleb() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		c := r.U8()
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		if c < 0x80 {
			return v
		}
	}
}

// Sleb reads a signed LEB128 number.
func (r *Reader) Sleb() int64 {
	var v uint64
	for shift := uint(0); ; {
		c := r.U8()
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		shift += 7
		if c < 0x80 {
			if c&0x40 != 0 && shift < 64 {
				v |= ^uint64(0) << shift
			}
			return int64(v)
		}
	}
}

// CString reads text up to its NUL, and skips the NUL. The text aliases B.
func (r *Reader) CString() []byte {
	i := bytes.IndexByte(r.B[r.At:], 0)
	if i < 0 {
		r.Bad, r.At = true, uint64(len(r.B))
		return nil
	}
	out := r.B[r.At : r.At+uint64(i)]
	r.At += uint64(i) + 1
	return out
}

// Length reads an initial length, which also says the format (DWARF 5, 7.4). A length past the
// end sets Bad.
func (r *Reader) Length() (n uint64, dwarf64 bool) {
	n = r.U32()
	if n == 0xffffffff {
		n, dwarf64 = r.U64(), true
	} else if n >= 0xfffffff0 {
		r.Bad = true
	}
	if n > r.Left() {
		r.Bad = true
	}
	return n, dwarf64
}
