package unwind

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/go-delve/delve/pkg/dwarf/frame"
	"github.com/go-delve/delve/pkg/dwarf/op"
)

// frames builds a section of call frame information, byte by byte.
type frames struct {
	b  []byte
	eh bool
}

// Where the built sections and their code are.
const (
	framesAt = 0x400000
	codeAt   = 0x401000
)

// entry writes one entry with its length in front; the id is an offset of the
// section, made relative in .eh_frame.
func (s *frames) entry(cie int64, body []byte) (at int) {
	at = len(s.b)
	s.b = binary.LittleEndian.AppendUint32(s.b, uint32(4+len(body)))
	id := uint32(0xffffffff)
	switch {
	case cie >= 0 && s.eh:
		id = uint32(int64(len(s.b)) - cie)
	case cie >= 0:
		id = uint32(cie)
	case s.eh:
		id = 0
	}
	s.b = append(binary.LittleEndian.AppendUint32(s.b, id), body...)
	return at
}

// cie writes version 1, code alignment 1, data alignment -8, return address in
// column 16, CFA rsp+8, return address at CFA-8.
func (s *frames) cie(augmentation string, data ...byte) int64 {
	body := append([]byte{1}, augmentation...)
	body = append(body, 0, 1, 0x78, 16)
	if augmentation != "" {
		body = append(append(body, byte(len(data))), data...)
	}
	return int64(s.entry(-1, append(body, frame.DW_CFA_def_cfa, SP, 8, 0x80|PC, 1)))
}

// absolute writes an FDE of 64 bytes of code from codeAt on, addresses of 8
// bytes, no augmentation.
func (s *frames) absolute(cie int64, program ...byte) {
	body := binary.LittleEndian.AppendUint64(nil, codeAt)
	s.entry(cie, append(binary.LittleEndian.AppendUint64(body, 64), program...))
}

func (s *frames) table() *Table {
	return New(&Section{Bytes: s.b, Addr: framesAt, EH: s.eh})
}

// TestInstructions runs each instruction: what it makes of the row at the
// code's start is compared as a whole.
func TestInstructions(t *testing.T) {
	first := Row{CFA: Rule{Kind: InRegister, Reg: SP, Off: 8}}
	first.Regs[PC] = Rule{Kind: AtCFA, Off: -8}
	expr := []byte{byte(op.DW_OP_breg0) + SP, 16}
	rule := func(n int, r Rule) func(*Row) { return func(w *Row) { w.Regs[n] = r } }
	cfa := func(r Rule) func(*Row) { return func(w *Row) { w.CFA = r } }
	same := func(*Row) {}
	for name, c := range map[string]struct {
		program []byte
		want    func(*Row)
	}{
		"nothing":                    {nil, same},
		"nop":                        {[]byte{frame.DW_CFA_nop, frame.DW_CFA_nop}, same},
		"offset":                     {[]byte{0x80 | 6, 2}, rule(6, Rule{Kind: AtCFA, Off: -16})},
		"offset_extended":            {[]byte{frame.DW_CFA_offset_extended, 6, 0x82, 1}, rule(6, Rule{Kind: AtCFA, Off: -130 * 8})},
		"offset_extended_sf":         {[]byte{frame.DW_CFA_offset_extended_sf, 6, 0x7f}, rule(6, Rule{Kind: AtCFA, Off: 8})},
		"GNU_negative_offset":        {[]byte{cfaGNUNegOffset, 6, 3}, rule(6, Rule{Kind: AtCFA, Off: 24})},
		"restore":                    {[]byte{0x80 | PC, 5, 0xc0 | PC}, same},
		"restore of nothing":         {[]byte{0x80 | 3, 5, 0xc0 | 3}, same},
		"restore_extended":           {[]byte{0x80 | PC, 5, frame.DW_CFA_restore_extended, PC}, same},
		"undefined":                  {[]byte{frame.DW_CFA_undefined, PC}, rule(PC, Rule{Kind: Undefined})},
		"same_value":                 {[]byte{frame.DW_CFA_same_value, 12}, rule(12, Rule{Kind: SameValue})},
		"register":                   {[]byte{frame.DW_CFA_register, PC, 10}, rule(PC, Rule{Kind: InRegister, Reg: 10})},
		"remember and restore":       {[]byte{frame.DW_CFA_remember_state, frame.DW_CFA_def_cfa, 6, 16, 0x80 | 3, 4, frame.DW_CFA_restore_state}, same},
		"remembered twice":           {[]byte{frame.DW_CFA_def_cfa_offset, 16, frame.DW_CFA_remember_state, frame.DW_CFA_def_cfa_offset, 24, frame.DW_CFA_remember_state, frame.DW_CFA_def_cfa_offset, 32, frame.DW_CFA_restore_state}, cfa(Rule{Kind: InRegister, Reg: SP, Off: 24})},
		"def_cfa":                    {[]byte{frame.DW_CFA_def_cfa, 6, 0x80, 2}, cfa(Rule{Kind: InRegister, Reg: 6, Off: 256})},
		"def_cfa_sf":                 {[]byte{frame.DW_CFA_def_cfa_sf, 6, 0x7e}, cfa(Rule{Kind: InRegister, Reg: 6, Off: 16})},
		"def_cfa_register":           {[]byte{frame.DW_CFA_def_cfa_register, 6}, cfa(Rule{Kind: InRegister, Reg: 6, Off: 8})},
		"def_cfa_offset":             {[]byte{frame.DW_CFA_def_cfa_offset, 48}, cfa(Rule{Kind: InRegister, Reg: SP, Off: 48})},
		"def_cfa_offset_sf":          {[]byte{frame.DW_CFA_def_cfa_offset_sf, 0x7d}, cfa(Rule{Kind: InRegister, Reg: SP, Off: 24})},
		"def_cfa_expression":         {append([]byte{frame.DW_CFA_def_cfa_expression, 2}, expr...), cfa(Rule{Kind: IsExpr, Expr: expr})},
		"expression":                 {append([]byte{frame.DW_CFA_expression, 6, 2}, expr...), rule(6, Rule{Kind: AtExpr, Expr: expr})},
		"val_expression":             {append([]byte{frame.DW_CFA_val_expression, SP, 2}, expr...), rule(SP, Rule{Kind: IsExpr, Expr: expr})},
		"val_offset":                 {[]byte{frame.DW_CFA_val_offset, SP, 2}, rule(SP, Rule{Kind: IsCFA, Off: -16})},
		"val_offset_sf":              {[]byte{frame.DW_CFA_val_offset_sf, SP, 0x7e}, rule(SP, Rule{Kind: IsCFA, Off: 16})},
		"GNU_args_size":              {[]byte{frame.DW_CFA_GNU_args_size, 0x90, 1}, same},
		"a vector register":          {[]byte{frame.DW_CFA_offset_extended, 17, 2, frame.DW_CFA_undefined, 0xff, 1, frame.DW_CFA_restore_extended, 40}, same},
		"what comes after":           {[]byte{0x41, frame.DW_CFA_def_cfa_offset, 99, 0x3f}, same}, // not even looked at
		"an advance of nothing":      {[]byte{0x40, frame.DW_CFA_def_cfa_offset, 16}, cfa(Rule{Kind: InRegister, Reg: SP, Off: 16})},
		"set_loc to here and beyond": {[]byte{frame.DW_CFA_set_loc, 0, 0x10, 0x40, 0, 0, 0, 0, 0, frame.DW_CFA_def_cfa_offset, 16, frame.DW_CFA_set_loc, 1, 0x10, 0x40, 0, 0, 0, 0, 0, frame.DW_CFA_def_cfa_offset, 24}, cfa(Rule{Kind: InRegister, Reg: SP, Off: 16})},
	} {
		want := first
		c.want(&want)
		for _, eh := range []bool{false, true} {
			s := frames{eh: eh}
			s.absolute(s.cie(""), c.program...)
			got, ok := s.table().At(codeAt)
			if !ok || !sameRow(got, want) {
				t.Errorf("%s, EH %v: %+v, %v, want %+v", name, eh, got, ok, want)
			}
		}
	}
	for name, program := range map[string][]byte{
		"an unknown one":           {0x3f},
		"restored without a state": {frame.DW_CFA_restore_state},
		"no operand":               {frame.DW_CFA_def_cfa, 6},
		"half a number":            {frame.DW_CFA_def_cfa_offset, 0x80},
		"a long expression":        {frame.DW_CFA_def_cfa_expression, 200, 1, 0x30},
		"too many states":          slices.Repeat([]byte{frame.DW_CFA_remember_state}, maxRemembered+1),
	} {
		s := frames{}
		s.absolute(s.cie(""), program...)
		if row, ok := s.table().At(codeAt); ok {
			t.Errorf("%s gives a row: %+v", name, row)
		}
	}
}

func sameRow(a, b Row) bool {
	same := func(x, y Rule) bool {
		return x.Kind == y.Kind && x.Reg == y.Reg && x.Off == y.Off && slices.Equal(x.Expr, y.Expr)
	}
	ok := a.Signal == b.Signal && same(a.CFA, b.CFA)
	for i := range a.Regs {
		ok = ok && same(a.Regs[i], b.Regs[i])
	}
	return ok
}

// TestAdvance asks at every address of code whose CFA moves with each kind of
// advance.
func TestAdvance(t *testing.T) {
	s := frames{}
	s.absolute(s.cie(""), 0x41, frame.DW_CFA_def_cfa_offset, 16, frame.DW_CFA_advance_loc1, 2, frame.DW_CFA_def_cfa_offset, 24,
		frame.DW_CFA_advance_loc2, 3, 0, frame.DW_CFA_def_cfa_offset, 32, frame.DW_CFA_advance_loc4, 4, 0, 0, 0, frame.DW_CFA_def_cfa_offset, 40)
	table := s.table()
	for pc := uint64(codeAt); pc < codeAt+64; pc++ {
		want := int64(8)
		for _, from := range []uint64{1, 3, 6, 10} {
			if pc-codeAt >= from {
				want += 8
			}
		}
		if row, ok := table.At(pc); !ok || row.CFA.Off != want {
			t.Errorf("at +%d: %d, %v, want %d", pc-codeAt, row.CFA.Off, ok, want)
		}
	}
	for _, pc := range []uint64{0, codeAt - 1, codeAt + 64, ^uint64(0)} {
		if _, ok := table.At(pc); ok {
			t.Errorf("%#x has a row", pc)
		}
	}
}

// TestAugmentations reads the entries that compilers give to C, to C++ with a
// language's data, and to signal trampolines, in all encodings of addresses.
func TestAugmentations(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		name, letters string
		data          []byte
		enc           byte // of the FDE's addresses
		lsda          []byte
		signal        bool
	}{
		{"zR", "zR", []byte{0x1b}, 0x1b, nil, false},
		{"zR, absolute", "zR", []byte{0x00}, 0x00, nil, false},
		{"zR, udata4", "zR", []byte{0x03}, 0x03, nil, false},
		{"zR, udata8", "zR", []byte{0x04}, 0x04, nil, false},
		{"zR, sdata8 relative", "zR", []byte{0x1c}, 0x1c, nil, false},
		{"zPLR", "zPLR", []byte{0x9b, 1, 2, 3, 4, 0x1b, 0x1b}, 0x1b, []byte{9, 9, 9, 9}, false},
		{"zPLR without a personality", "zPLR", []byte{0xff, 0x1b, 0x1b}, 0x1b, []byte{9, 9, 9, 9}, false},
		{"zRS", "zRS", []byte{0x1b}, 0x1b, nil, true},
		{"more data than letters", "zR", []byte{0x1b, 7, 7}, 0x1b, nil, false},
	} {
		s := frames{eh: true}
		cie := s.cie(c.letters, c.data...)
		here := uint64(framesAt + len(s.b) + 8)
		var body []byte
		switch c.enc & 0x0f {
		case 0x03, 0x0b:
			from := uint64(codeAt)
			if c.enc&0x10 != 0 {
				from -= here
			}
			body = le.AppendUint32(le.AppendUint32(nil, uint32(from)), 64)
		default:
			from := uint64(codeAt)
			if c.enc&0x10 != 0 {
				from -= here
			}
			body = le.AppendUint64(le.AppendUint64(nil, from), 64)
		}
		body = append(append(body, byte(len(c.lsda))), c.lsda...)
		s.entry(cie, append(body, frame.DW_CFA_def_cfa_offset, 72))
		row, ok := s.table().At(codeAt + 63)
		if !ok || row.CFA.Off != 72 || row.Signal != c.signal || row.Regs[PC].Off != -8 {
			t.Errorf("%s: %+v, %v", c.name, row, ok)
		}
		if _, ok := s.table().At(codeAt + 64); ok {
			t.Errorf("%s: there is code past the end", c.name)
		}
	}
	for name, c := range map[string]struct {
		letters string
		data    []byte
	}{
		"through memory":           {"zR", []byte{0x9b}},
		"relative to the data":     {"zR", []byte{0x3b}},
		"an encoding of nobody":    {"zR", []byte{0x0e}},
		"a letter of nobody":       {"zQ", nil},
		"GCC 2's":                  {"eh", nil},
		"data that isn't there":    {"zR", nil},
		"a personality cut short":  {"zPR", []byte{0x00, 1, 2}},
		"a personality of nowhere": {"zPR", []byte{0x57, 0x1b}},
	} {
		s := frames{eh: true}
		cie := s.cie(c.letters, c.data...)
		body := le.AppendUint32(le.AppendUint32(nil, uint32(codeAt-framesAt-len(s.b)-8)), 64)
		s.entry(cie, append(body, 0))
		if row, ok := s.table().At(codeAt); ok {
			t.Errorf("%s: a row: %+v", name, row)
		}
	}
}

// TestSetLocIsEncoded has DW_CFA_set_loc as .eh_frame has it: in the encoding
// of the FDE's addresses (LSB 10.6.1.1), here relative to its own place.
func TestSetLocIsEncoded(t *testing.T) {
	le := binary.LittleEndian
	s := frames{eh: true}
	cie := s.cie("zR", 0x1b)
	body := le.AppendUint32(le.AppendUint32(nil, uint32(codeAt-framesAt-len(s.b)-8)), 64)
	body = append(body, 0, frame.DW_CFA_set_loc)
	body = le.AppendUint32(body, uint32(codeAt+5-framesAt-(len(s.b)+8+len(body))))
	s.entry(cie, append(body, frame.DW_CFA_def_cfa_offset, 16))
	for off, want := range map[uint64]int64{0: 8, 4: 8, 5: 16, 63: 16} {
		if row, ok := s.table().At(codeAt + off); !ok || row.CFA.Off != want {
			t.Errorf("at +%d: %d, %v, want %d", off, row.CFA.Off, ok, want)
		}
	}
}

// TestLyingEntries has entries that are cut at every byte, are too long, or
// refer to what is no CIE: they give no row or the right one, soon.
func TestLyingEntries(t *testing.T) {
	for _, eh := range []bool{false, true} {
		s := frames{eh: eh}
		s.absolute(s.cie(""), frame.DW_CFA_def_cfa_offset, 16)
		whole := s.b
		start := time.Now()
		for n := range len(whole) {
			s.b = whole[:n]
			if row, ok := s.table().At(codeAt); ok {
				t.Errorf("EH %v: %d of %d bytes have a row: %+v", eh, n, len(whole), row)
			}
		}
		for at := range whole {
			for _, v := range []byte{0, 0x7f, 0x80, 0xff} {
				s.b = slices.Clone(whole)
				s.b[at] = v
				for _, f := range s.table().fdes {
					s.table().At(f.low)
				}
			}
		}
		// An FDE that names itself as its CIE, and one that names another FDE.
		s.b = slices.Clone(whole)
		s.absolute(int64(len(whole)))
		fde := int64(binary.LittleEndian.Uint32(whole) + 4)
		s.absolute(fde, frame.DW_CFA_def_cfa_offset, 99)
		if n := len(s.table().fdes); n != 1 {
			t.Errorf("EH %v: %d FDEs, want 1", eh, n)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// TestFirstSectionCounts has two sections that describe the same code.
func TestFirstSectionCounts(t *testing.T) {
	a, b := frames{eh: true}, frames{}
	a.absolute(a.cie(""), frame.DW_CFA_def_cfa_offset, 16)
	b.absolute(b.cie(""), frame.DW_CFA_def_cfa_offset, 24)
	eh, debug := &Section{a.b, framesAt, true}, &Section{b.b, 0, false}
	for want, table := range map[int64]*Table{16: New(eh, debug), 24: New(debug, eh)} {
		if row, ok := table.At(codeAt + 1); !ok || row.CFA.Off != want || len(table.fdes) != 1 {
			t.Errorf("%+v, %v, of %d, want %d", row, ok, len(table.fdes), want)
		}
	}
	if _, ok := (&Table{}).At(codeAt); ok {
		t.Error("the zero Table knows something")
	}
}

// TestLongEntries: entries whose lengths have 64 bits. Their identification has as
// many in .debug_frame (DWARF 5, 6.4.1), and 32 in .eh_frame (LSB).
func TestLongEntries(t *testing.T) {
	le := binary.LittleEndian
	for _, eh := range []bool{false, true} {
		var b []byte
		entry := func(cie int, body []byte) (at int) {
			at = len(b)
			idSize := 8
			if eh {
				idSize = 4
			}
			b = le.AppendUint64(le.AppendUint32(b, 0xffffffff), uint64(idSize+len(body)))
			switch {
			case eh && cie < 0:
				b = le.AppendUint32(b, 0)
			case eh:
				b = le.AppendUint32(b, uint32(len(b)-cie))
			case cie < 0:
				b = le.AppendUint64(b, ^uint64(0))
			default:
				b = le.AppendUint64(b, uint64(cie))
			}
			b = append(b, body...)
			return at
		}
		entry(-1, []byte{1, 0, 1, 0x78, 16, frame.DW_CFA_def_cfa, 6, 32}) // one that nothing refers to
		cie := entry(-1, []byte{1, 0, 1, 0x78, 16, frame.DW_CFA_def_cfa, SP, 8, 0x80 | PC, 1})
		body := le.AppendUint64(le.AppendUint64(nil, codeAt), 64)
		entry(cie, append(body, 0x41, frame.DW_CFA_def_cfa_offset, 16))
		row, ok := New(&Section{Bytes: b, Addr: framesAt, EH: eh}).At(codeAt + 1)
		ra := row.Regs[PC]
		if !ok || row.CFA.Kind != InRegister || row.CFA.Reg != SP || row.CFA.Off != 16 || ra.Kind != AtCFA || ra.Off != -8 {
			t.Errorf("eh %t: %+v, %t", eh, row, ok)
		}
	}
}
