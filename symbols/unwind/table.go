// Package unwind reads call frame information, .eh_frame and .debug_frame. At any address of a
// function it finds the caller's stack pointer and registers. It touches no process.
package unwind

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"kprobe/symbols/dwread"
)

// Table is the call frame information of a file. The zero Table is empty. A Table is safe for
// concurrent use.
type Table struct {
	fdes []fde
}

// fde describes the code from low to high. A file may have a hundred thousand.
type fde struct {
	low, high uint64
	cie       *cie
	off, size uint32 // of the instructions in cie.in
}

// program returns the instructions and their address.
func (f *fde) program() ([]byte, uint64) {
	return f.cie.in.Bytes[f.off:][:f.size], f.cie.in.Addr + uint64(f.off)
}

type cie struct {
	in        *Section
	codeAlign uint64
	dataAlign int64
	ra        uint64 // the column of the return address
	enc       byte
	augmented bool
	signal    bool
	program   []byte
}

// maxFDEs limits the table.
const maxFDEs = 1 << 23

// Section is a section with call frame information and its address.
type Section struct {
	Bytes []byte
	Addr  uint64
	EH    bool // .eh_frame; otherwise .debug_frame
}

// New reads the sections. Damage ends a section; entries before it count. If several sections
// describe an address, the first one counts. The table holds the sections.
func New(sections ...*Section) *Table {
	t := &Table{}
	for _, s := range sections {
		n := 0
		s.walk(func(fde) bool {
			n++
			return n < maxFDEs
		})
		found := make([]fde, 0, n)
		s.walk(func(f fde) bool {
			found = append(found, f)
			return len(found) < maxFDEs
		})
		if len(t.fdes) == 0 {
			t.fdes = found
			continue
		}
		t.sort()
		n = len(t.fdes)
		have := Table{t.fdes[:n:n]}
		for _, f := range found {
			if _, ok := have.find(f.low); !ok {
				t.fdes = append(t.fdes, f)
			}
		}
	}
	t.sort()
	return t
}

// Find is At of a Table of the sections, for one address. It takes as long as New, but no
// memory.
func Find(pc uint64, sections ...*Section) (Row, bool) {
	for _, s := range sections {
		var t Table
		s.walk(func(f fde) bool {
			if pc >= f.low && pc < f.high {
				t.fdes = []fde{f}
			}
			return t.fdes == nil
		})
		if t.fdes != nil {
			return t.At(pc)
		}
	}
	return Row{}, false
}

// Ranges calls yield with the code that each entry describes, from low to high, in the order
// of the section, until yield returns false. Damage ends the walk.
func (s *Section) Ranges(yield func(low, high uint64) bool) {
	s.walk(func(f fde) bool { return yield(f.low, f.high) })
}

func (t *Table) sort() {
	slices.SortStableFunc(t.fdes, func(x, y fde) int { return cmp.Compare(x.low, y.low) })
}

func (t *Table) find(pc uint64) (*fde, bool) {
	i := sort.Search(len(t.fdes), func(i int) bool { return t.fdes[i].low > pc }) - 1
	if i < 0 || pc >= t.fdes[i].high {
		return nil, false
	}
	return &t.fdes[i], true
}

type parser struct {
	*Section
	cies map[uint64]*cie
}

// walk calls visit with the entries of a section until visit returns false.
func (s *Section) walk(visit func(fde) bool) {
	p := parser{Section: s, cies: map[uint64]*cie{}}
	if uint64(len(p.Bytes)) > math.MaxUint32 {
		return // fde.off
	}
	for at := uint64(0); at+4 <= uint64(len(p.Bytes)); {
		r := dwread.At(p.Bytes, at)
		n, d64 := r.Length()
		if r.Bad || n > uint64(len(p.Bytes))-r.At {
			return
		}
		body, end := r.At, r.At+n
		at = end
		if n == 0 {
			if p.EH {
				return
			}
			continue
		}
		r.B = p.Bytes[:end]
		id := r.Offset(d64 && !p.EH) // of .eh_frame 4 bytes always (LSB)
		if p.EH && id == 0 || !p.EH && (id == 0xffffffff || id == ^uint64(0)) {
			continue // a CIE is read when an FDE refers to it
		}
		where := id
		if p.EH {
			if id > body {
				continue
			}
			where = body - id
		}
		c := p.cie(where)
		if c == nil {
			continue
		}
		if f, ok := c.fde(&r, p.Addr); ok && !visit(f) {
			return
		}
	}
}

// fde reads an entry from the address of its code on. The bytes of r lie at an address.
func (c *cie) fde(r *dwread.Reader, start uint64) (fde, bool) {
	low := pointer(r, c.enc, start)
	size := pointer(r, c.enc&0x0f, start)
	if c.augmented {
		r.Take(r.Uleb())
	}
	return fde{low, low + size, c, uint32(r.At), uint32(r.Left())}, !r.Bad && size > 0 && low+size > low
}

func (p *parser) cie(at uint64) *cie {
	c, ok := p.cies[at]
	if !ok {
		c = p.readCIE(at)
		p.cies[at] = c
	}
	return c
}

func (p *parser) readCIE(at uint64) *cie {
	if at >= uint64(len(p.Bytes)) {
		return nil
	}
	r := dwread.At(p.Bytes, at)
	n, d64 := r.Length()
	if r.Bad || n > uint64(len(p.Bytes))-r.At {
		return nil
	}
	r.B = p.Bytes[:r.At+n]
	id := r.Offset(d64 && !p.EH) // of .eh_frame 4 bytes always (LSB)
	if p.EH != (id == 0) {
		return nil
	}
	c := &cie{in: p.Section}
	version := r.U8()
	if version != 1 && version != 3 && version != 4 {
		return nil
	}
	aug := string(r.CString())
	if version == 4 {
		if size, seg := r.U8(), r.U8(); size != 8 || seg != 0 {
			return nil
		}
	}
	c.codeAlign, c.dataAlign = r.Uleb(), r.Sleb()
	if version == 1 {
		c.ra = uint64(r.U8())
	} else {
		c.ra = r.Uleb()
	}
	if aug != "" {
		if aug[0] != 'z' {
			return nil
		}
		c.augmented = true
		data := dwread.At(p.Bytes, r.At)
		data.B = p.Bytes[:min(uint64(len(r.B)), data.At+10)]
		size := data.Uleb()
		start := data.At
		r.At = start
		data = dwread.At(r.B, start)
		for _, a := range aug[1:] {
			switch a {
			case 'R':
				if c.enc = data.U8(); c.enc&0x80 != 0 {
					return nil // the address is in memory
				}
			case 'P':
				if enc := data.U8(); enc != peOmit {
					pointer(&data, enc, p.Addr)
				}
			case 'L':
				data.U8()
			case 'S':
				c.signal = true
			case 'B':
			default:
				return nil
			}
		}
		if data.Bad {
			return nil
		}
		r.Take(size)
	}
	if r.Bad {
		return nil
	}
	c.program = r.Take(r.Left())
	return c
}

// Pointer reads the encoded address at offset at of bytes that start at an address, as in
// headers of .eh_frame. ok is false for damage, and for addresses that are relative to
// anything but their own place.
func Pointer(b []byte, at uint64, enc byte, start uint64) (v uint64, ok bool) {
	r := dwread.At(b, at)
	v = pointer(&r, enc, start)
	return v, !r.Bad && enc&0x80 == 0
}

// peOmit is the encoding of a missing address (DW_EH_PE_omit).
const peOmit = 0xff

// pointer reads an encoded address (LSB, DW_EH_PE_*) from bytes that start at an address. It
// can't read those that are relative to anything but their own place. If the address is in
// memory, it returns the place there.
func pointer(r *dwread.Reader, enc byte, start uint64) uint64 {
	at := r.At
	var v uint64
	switch enc & 0x0f {
	case 0x00, 0x04, 0x0c:
		v = r.U64()
	case 0x01:
		v = r.Uleb()
	case 0x02:
		v = r.U16()
	case 0x03:
		v = r.U32()
	case 0x09:
		v = uint64(r.Sleb())
	case 0x0a:
		v = uint64(int16(r.U16()))
	case 0x0b:
		v = uint64(int32(r.U32()))
	default:
		r.Bad = true
	}
	switch enc & 0x70 {
	case 0:
	case 0x10:
		v += start + at
	default:
		r.Bad = true
	}
	return v
}
