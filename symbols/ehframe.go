package symbols

import (
	"debug/elf"
	"encoding/binary"
	"slices"
)

// fde is a range of code that one entry of .eh_frame describes: mostly a
// function, or the cold part of one.
type fde struct{ start, end Vaddr }

// fdes reads the ranges of .eh_frame, ascending and without repeats. Damage
// ends the walk: what was read before it is kept.
func (im *image) fdes() []fde {
	b, base := im.ehFrame()
	w := ehWalker{b: b, base: base, cies: map[uint64]byte{}}
	n := 0
	for range w.walk {
		n++
	}
	all := slices.AppendSeq(make([]fde, 0, n), w.walk)
	slices.SortFunc(all, func(x, y fde) int {
		switch {
		case x.start < y.start:
			return -1
		case x.start > y.start:
			return 1
		case x.end > y.end: // the widest of several at one start is kept
			return -1
		case x.end < y.end:
			return 1
		}
		return 0
	})
	return slices.CompactFunc(all, func(x, y fde) bool { return x.start == y.start })
}

// ehFrame is the contents of .eh_frame and its address, found by its section
// or else through PT_GNU_EH_FRAME (LSB, "Exception Frames").
func (im *image) ehFrame() ([]byte, Vaddr) {
	if s := im.section(".eh_frame"); s != nil {
		if b, err := im.data(s); err == nil && b != nil {
			return b, s.addr
		}
	}
	seg := im.segmentOf(elf.PT_GNU_EH_FRAME)
	if seg == nil {
		return nil, 0
	}
	hdr, err := im.bytes(seg.off, min(seg.filesz, 64), "the unwinding header")
	if err != nil || len(hdr) < 8 || hdr[0] != 1 {
		return nil, 0
	}
	c := ehCursor{b: hdr, at: 4, base: seg.vaddr}
	at, ok := c.pointer(hdr[1])
	if !ok {
		return nil, 0
	}
	b, err := im.at(Vaddr(at), maxSection, "the unwinding information")
	if err != nil {
		return nil, 0
	}
	return b, Vaddr(at)
}

// ehWalker goes through the records of .eh_frame.
type ehWalker struct {
	b    []byte
	base Vaddr
	cies map[uint64]byte // pointer encoding by the CIE's offset; peOmit is a CIE that can't be read
}

// Encodings of pointers: DW_EH_PE_* of the LSB.
const (
	peAbs      = 0x00
	peULEB     = 0x01
	peUdata2   = 0x02
	peUdata4   = 0x03
	peUdata8   = 0x04
	peSLEB     = 0x09
	peSdata2   = 0x0a
	peSdata4   = 0x0b
	peSdata8   = 0x0c
	pePCRel    = 0x10
	peIndirect = 0x80
	peOmit     = 0xff
)

// walk goes through the ranges in the order of the file, as an iter.Seq does.
func (w *ehWalker) walk(yield func(fde) bool) {
	le := binary.LittleEndian
	for at := uint64(0); at+8 <= uint64(len(w.b)); {
		n := uint64(le.Uint32(w.b[at:]))
		body := at + 4
		if n == 0xffffffff {
			if at+16 > uint64(len(w.b)) {
				break
			}
			n, body = le.Uint64(w.b[at+4:]), at+12
		}
		if n == 0 || n > uint64(len(w.b))-body {
			break // the terminator, or damage
		}
		if id := uint64(le.Uint32(w.b[body:min(body+4, uint64(len(w.b)))])); n >= 4 && id != 0 && id <= body {
			if enc := w.cie(body - id); enc != peOmit {
				c := ehCursor{b: w.b[:body+n], at: body + 4, base: w.base}
				start, ok := c.pointer(enc)
				size, ok2 := c.pointer(enc & 0x0f)
				if ok && ok2 && size > 0 && start+size > start && !yield(fde{Vaddr(start), Vaddr(start + size)}) {
					return
				}
			}
		}
		at = body + n
		if n < 4 {
			break
		}
	}
}

// cie reads how the FDEs of a common record write their addresses.
func (w *ehWalker) cie(at uint64) byte {
	if enc, ok := w.cies[at]; ok {
		return enc
	}
	enc := w.readCIE(at)
	w.cies[at] = enc
	return enc
}

func (w *ehWalker) readCIE(at uint64) byte {
	if at+9 > uint64(len(w.b)) {
		return peOmit
	}
	le := binary.LittleEndian
	n, body := uint64(le.Uint32(w.b[at:])), at+4
	if n == 0xffffffff {
		if at+21 > uint64(len(w.b)) {
			return peOmit
		}
		n, body = le.Uint64(w.b[at+4:]), at+12
	}
	if n < 5 || n > uint64(len(w.b))-body || le.Uint32(w.b[body:]) != 0 {
		return peOmit
	}
	c := ehCursor{b: w.b[:body+n], at: body + 5, base: w.base}
	aug := cString(c.b, c.at)
	c.at += uint64(len(aug)) + 1
	if aug == "" {
		return peAbs
	}
	if aug[0] != 'z' {
		return peOmit
	}
	_, ok1 := c.uleb() // code alignment
	_, ok2 := c.uleb() // data alignment
	_, ok3 := c.uleb() // return address register
	_, ok4 := c.uleb() // length of the augmentation
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return peOmit
	}
	for _, a := range aug[1:] {
		switch a {
		case 'R':
			if c.at < uint64(len(c.b)) {
				return c.b[c.at]
			}
			return peOmit
		case 'L':
			c.at++
		case 'P':
			if c.at >= uint64(len(c.b)) {
				return peOmit
			}
			enc := c.b[c.at]
			c.at++
			if _, ok := c.pointer(enc &^ peIndirect); !ok {
				return peOmit
			}
		case 'S', 'B':
		default:
			return peOmit
		}
	}
	return peAbs
}

// ehCursor reads values at at; base is the address of b[0].
type ehCursor struct {
	b    []byte
	at   uint64
	base Vaddr
}

// pointer reads an encoded pointer. Pointers through memory, and relative to
// anything but their own place, are not read: x86-64 has none in FDEs.
func (c *ehCursor) pointer(enc byte) (uint64, bool) {
	var rel uint64
	switch enc & 0xf0 {
	case 0:
	case pePCRel:
		rel = uint64(c.base) + c.at
	default:
		return 0, false
	}
	size := uint64(8)
	switch enc & 0x0f {
	case peULEB, peSLEB:
		v, ok := c.uleb()
		return v + rel, ok
	case peUdata2, peSdata2:
		size = 2
	case peUdata4, peSdata4:
		size = 4
	case peAbs, peUdata8, peSdata8:
	default:
		return 0, false
	}
	if c.at+size > uint64(len(c.b)) {
		return 0, false
	}
	var word [8]byte
	copy(word[:], c.b[c.at:c.at+size])
	c.at += size
	v := binary.LittleEndian.Uint64(word[:])
	switch enc & 0x0f {
	case peSdata2:
		v = uint64(int16(v))
	case peSdata4:
		v = uint64(int32(v))
	}
	return v + rel, true
}

func (c *ehCursor) uleb() (uint64, bool) {
	var v uint64
	for shift := uint(0); shift < 64 && c.at < uint64(len(c.b)); shift += 7 {
		x := c.b[c.at]
		c.at++
		v |= uint64(x&0x7f) << shift
		if x < 0x80 {
			return v, true
		}
	}
	return 0, false
}
