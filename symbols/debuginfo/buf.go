package debuginfo

import (
	"bytes"
	"encoding/binary"
)

// buf reads values from bytes. A read past the end gives zero and sets bad,
// which stays set, so that a run of reads is checked once.
type buf struct {
	b   []byte
	at  uint64 // never past len(b)
	bad bool
}

// bufAt starts to read b at off.
func bufAt(b []byte, off uint64) buf {
	if off > uint64(len(b)) {
		return buf{b: b, at: uint64(len(b)), bad: true}
	}
	return buf{b: b, at: off}
}

func (r *buf) left() uint64 { return uint64(len(r.b)) - r.at }

// take gives the next n bytes, which alias the section.
func (r *buf) take(n uint64) []byte {
	if n > r.left() {
		r.bad, r.at = true, uint64(len(r.b))
		return nil
	}
	out := r.b[r.at : r.at+n : r.at+n]
	r.at += n
	return out
}

func (r *buf) skip(n uint64) { r.take(n) }

func (r *buf) u8() uint8 {
	if r.at >= uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	v := r.b[r.at]
	r.at++
	return v
}

func (r *buf) u16() uint64 {
	if b := r.take(2); b != nil {
		return uint64(binary.LittleEndian.Uint16(b))
	}
	return 0
}

func (r *buf) u24() uint64 {
	if b := r.take(3); b != nil {
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
	}
	return 0
}

func (r *buf) u32() uint64 {
	if b := r.take(4); b != nil {
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func (r *buf) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// uint reads a number of 1, 2, 4 or 8 bytes.
func (r *buf) uint(size int) uint64 {
	switch size {
	case 1:
		return uint64(r.u8())
	case 2:
		return r.u16()
	case 4:
		return r.u32()
	case 8:
		return r.u64()
	}
	r.bad = true
	return 0
}

// offset reads a section offset of the DWARF format in use.
func (r *buf) offset(dwarf64 bool) uint64 {
	if dwarf64 {
		return r.u64()
	}
	return r.u32()
}

func (r *buf) uleb() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		c := r.u8()
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		if c < 0x80 {
			return v
		}
	}
}

func (r *buf) sleb() int64 {
	var v uint64
	for shift := uint(0); ; {
		c := r.u8()
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

// cstring reads text up to its NUL.
func (r *buf) cstring() []byte {
	i := bytes.IndexByte(r.b[r.at:], 0)
	if i < 0 {
		r.bad, r.at = true, uint64(len(r.b))
		return nil
	}
	out := r.b[r.at : r.at+uint64(i)]
	r.at += uint64(i) + 1
	return out
}

// length reads an initial length and tells the format (DWARF 5, 7.4). A length
// past the end is bad.
func (r *buf) length() (n uint64, dwarf64 bool) {
	n = r.u32()
	if n == 0xffffffff {
		n, dwarf64 = r.u64(), true
	} else if n >= 0xfffffff0 {
		r.bad = true
	}
	if n > r.left() {
		r.bad = true
	}
	return n, dwarf64
}
