// Package unwind reads call frame information, .eh_frame and .debug_frame: at
// any address of a function, where the caller's stack pointer and registers
// are. It touches no process.
package unwind

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
)

// Table is the call frame information of a file. The zero Table has none. It
// is safe for concurrent use.
type Table struct {
	fdes []fde
}

// fde describes the code from low to high.
type fde struct {
	low, high uint64
	cie       *cie
	program   []byte
	at        uint64 // address of the program
}

type cie struct {
	codeAlign uint64
	dataAlign int64
	ra        uint64 // the column of the return address
	enc       byte
	augmented bool
	signal    bool
	program   []byte
}

// maxFDEs bounds the table.
const maxFDEs = 1 << 23

// Section is a section with call frame information and its address.
type Section struct {
	Bytes []byte
	Addr  uint64
	EH    bool // .eh_frame, else .debug_frame
}

// New reads the sections. Damage ends a section: what comes before it counts.
// Of several descriptions of one address that of the first section counts.
func New(sections ...Section) *Table {
	t := &Table{}
	for _, s := range sections {
		p := parser{Section: s, cies: map[uint64]*cie{}}
		p.parse()
		if len(t.fdes) == 0 {
			t.fdes = p.out
			continue
		}
		t.sort()
		n := len(t.fdes)
		have := Table{t.fdes[:n:n]}
		for _, f := range p.out {
			if _, ok := have.find(f.low); !ok {
				t.fdes = append(t.fdes, f)
			}
		}
	}
	t.sort()
	return t
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
	Section
	cies map[uint64]*cie
	out  []fde
}

func (p *parser) parse() {
	for at := uint64(0); at+4 <= uint64(len(p.Bytes)) && len(p.out) < maxFDEs; {
		r := reader{b: p.Bytes, at: at}
		n, d64 := r.length()
		if r.bad || n > uint64(len(p.Bytes))-r.at {
			return
		}
		body, end := r.at, r.at+n
		at = end
		if n == 0 {
			if p.EH {
				return
			}
			continue
		}
		r.b = p.Bytes[:end]
		id := r.offset(d64 && !p.EH) // of .eh_frame 4 bytes always (LSB)
		if p.EH && id == 0 || !p.EH && (id == 0xffffffff || id == ^uint64(0)) {
			continue // a CIE: read when it is referred to
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
		low := pointer(&r, c.enc, p.Addr)
		size := pointer(&r, c.enc&0x0f, p.Addr)
		if c.augmented {
			r.take(r.uleb())
		}
		if !r.bad && size > 0 && low+size > low {
			p.out = append(p.out, fde{low, low + size, c, r.rest(), p.Addr + r.at})
		}
	}
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
	r := reader{b: p.Bytes, at: at}
	n, d64 := r.length()
	if r.bad || n > uint64(len(p.Bytes))-r.at {
		return nil
	}
	r.b = p.Bytes[:r.at+n]
	id := r.offset(d64 && !p.EH) // of .eh_frame 4 bytes always (LSB)
	if p.EH != (id == 0) {
		return nil
	}
	c := &cie{}
	version := r.u8()
	if version != 1 && version != 3 && version != 4 {
		return nil
	}
	aug := r.cstring()
	if version == 4 {
		if size, seg := r.u8(), r.u8(); size != 8 || seg != 0 {
			return nil
		}
	}
	c.codeAlign, c.dataAlign = r.uleb(), r.sleb()
	if version == 1 {
		c.ra = uint64(r.u8())
	} else {
		c.ra = r.uleb()
	}
	if aug != "" {
		if aug[0] != 'z' {
			return nil
		}
		c.augmented = true
		data := reader{b: p.Bytes, at: r.at}
		data.b = p.Bytes[:min(uint64(len(r.b)), data.at+10)]
		size := data.uleb()
		start := data.at
		r.at = start
		data = reader{b: r.b, at: start}
		for _, a := range aug[1:] {
			switch a {
			case 'R':
				if c.enc = data.u8(); c.enc&0x80 != 0 {
					return nil // through memory
				}
			case 'P':
				if enc := data.u8(); enc != peOmit {
					pointer(&data, enc, p.Addr)
				}
			case 'L':
				data.u8()
			case 'S':
				c.signal = true
			case 'B':
			default:
				return nil
			}
		}
		if data.bad {
			return nil
		}
		r.take(size)
	}
	if r.bad {
		return nil
	}
	c.program = r.rest()
	return c
}

// peOmit is the encoding of an address that isn't there (DW_EH_PE_omit).
const peOmit = 0xff

// pointer reads an encoded address (LSB, DW_EH_PE_*) from bytes that start at
// an address; those relative to anything but their own place can't be read. Of
// one through memory it is the place there.
func pointer(r *reader, enc byte, start uint64) uint64 {
	at := r.at
	var v uint64
	switch enc & 0x0f {
	case 0x00, 0x04, 0x0c:
		v = r.u64()
	case 0x01:
		v = r.uleb()
	case 0x02:
		v = uint64(r.u16())
	case 0x03:
		v = uint64(r.u32())
	case 0x09:
		v = uint64(r.sleb())
	case 0x0a:
		v = uint64(int16(r.u16()))
	case 0x0b:
		v = uint64(int32(r.u32()))
	default:
		r.bad = true
	}
	switch enc & 0x70 {
	case 0:
	case 0x10:
		v += start + at
	default:
		r.bad = true
	}
	return v
}

// reader reads values; what lies past the end is zero and sets bad.
type reader struct {
	b   []byte
	at  uint64
	bad bool
}

func (r *reader) take(n uint64) []byte {
	if r.at > uint64(len(r.b)) || n > uint64(len(r.b))-r.at {
		r.bad, r.at = true, uint64(len(r.b))
		return nil
	}
	out := r.b[r.at : r.at+n]
	r.at += n
	return out
}

func (r *reader) rest() []byte { return r.b[min(r.at, uint64(len(r.b))):] }

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) length() (n uint64, d64 bool) {
	n = uint64(r.u32())
	if n == 0xffffffff {
		return r.u64(), true
	}
	return n, false
}

func (r *reader) offset(d64 bool) uint64 {
	if d64 {
		return r.u64()
	}
	return uint64(r.u32())
}

func (r *reader) cstring() string {
	start := r.at
	for r.u8() != 0 {
	}
	if r.bad {
		return ""
	}
	return string(r.b[start : r.at-1])
}

func (r *reader) uleb() uint64 {
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

func (r *reader) sleb() int64 {
	var v uint64
	for shift := uint(0); ; {
		c := r.u8()
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		if shift += 7; c < 0x80 {
			if c&0x40 != 0 && shift < 64 {
				v |= ^uint64(0) << shift
			}
			return int64(v)
		}
	}
}
