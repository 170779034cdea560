package debuginfo

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// lineProgram is a header and a program: file 1 is a.c, line base -5, range
// 14, opcode base 13, instructions of 1 byte.
type lineProgram struct {
	version int
	maxOps  byte
	minInst byte
	base    byte // opcode base; 0 is 13
	code    []byte
}

func (p lineProgram) bytes() []byte {
	lengths := []byte{0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 2, 0, 1} // of opcodes from 1 on
	base := p.base
	if base == 0 {
		base = 13
	}
	head := []byte{max(p.minInst, 1)}
	if p.version >= 4 {
		head = append(head, max(p.maxOps, 1))
	}
	head = append(append(head, 1, 0xfb, 14, base), lengths[:base-1]...)
	if p.version >= 5 {
		head = append(head, 1, lnctPath, byte(formString), 1, '/', 'd', 0)
		head = append(head, 2, lnctPath, byte(formString), lnctDir, byte(formUdata), 2, 'u', '.', 'c', 0, 0, 'a', '.', 'c', 0, 0)
	} else {
		head = append(head, '/', 'd', 0, 0, 'a', '.', 'c', 0, 1, 0, 0, 0)
	}
	b := le.AppendUint16(nil, uint16(p.version))
	if p.version >= 5 {
		b = append(b, 8, 0)
	}
	b = append(append(le.AppendUint32(b, uint32(len(head))), head...), p.code...)
	return append(le.AppendUint32(nil, uint32(len(b))), b...)
}

// table runs a program as the only one of a unit's.
func (p lineProgram) table(t *testing.T, section []byte) *LineTable {
	t.Helper()
	abbrev := []byte{1, 0x11, 0, 0x03, byte(formString), 0x10, byte(formData4), 0, 0, 0}
	info := handUnit(4, 1, 'u', '.', 'c', 0, 0, 0, 0, 0)
	d := New(Sections{Info: info, Abbrev: abbrev, Line: section}, Options{})
	if len(d.Units()) != 1 {
		t.Fatalf("%d units", len(d.Units()))
	}
	return d.Units()[0].Lines()
}

// from sets the address to 0x1000 and makes a first row there.
func from(code ...byte) []byte {
	return slices.Concat([]byte{0, 9, lneSetAddress}, words(0x1000), []byte{lnsCopy}, code)
}

var endSequence = []byte{lnsAdvancePC, 1, 0, 1, lneEndSequence}

// TestLineOpcodes runs each opcode between a first row, at 0x1000 of line 1,
// and the sequence's end: the row it leads to is compared as a whole.
func TestLineOpcodes(t *testing.T) {
	row := Row{Addr: 0x1000, File: 1, Line: 1, Stmt: true}
	with := func(change func(*Row)) Row {
		r := row
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		code []byte
		want Row
	}{
		"copy":               {[]byte{lnsCopy}, row},
		"advance_pc":         {[]byte{lnsAdvancePC, 0x82, 1, lnsCopy}, with(func(r *Row) { r.Addr += 130 })},
		"advance_line":       {[]byte{lnsAdvanceLine, 0xe4, 0, lnsCopy}, with(func(r *Row) { r.Line += 100 })},
		"advance_line back":  {[]byte{lnsAdvanceLine, 100, lnsAdvanceLine, 0x7e, lnsCopy}, with(func(r *Row) { r.Line = 0 })},
		"set_file":           {[]byte{lnsSetFile, 0, lnsCopy}, with(func(r *Row) { r.File = 0 })},
		"set_column":         {[]byte{lnsSetColumn, 0x85, 1, lnsCopy}, row},
		"negate_stmt":        {[]byte{lnsNegateStmt, lnsCopy}, with(func(r *Row) { r.Stmt = false })},
		"negate_stmt twice":  {[]byte{lnsNegateStmt, lnsNegateStmt, lnsCopy}, row},
		"set_basic_block":    {[]byte{lnsBasicBlock, lnsCopy}, row},
		"const_add_pc":       {[]byte{lnsConstAddPC, lnsCopy}, with(func(r *Row) { r.Addr += (255 - 13) / 14 })},
		"fixed_advance_pc":   {[]byte{lnsFixedAdvancePC, 2, 1, lnsCopy}, with(func(r *Row) { r.Addr += 0x102 })},
		"prologue_end":       {[]byte{lnsPrologueEnd, lnsCopy}, with(func(r *Row) { r.Prologue = true })},
		"prologue_end ended": {[]byte{lnsPrologueEnd, lnsCopy, lnsCopy}, row},
		"epilogue_begin":     {[]byte{lnsEpilogueBegin, lnsCopy}, row},
		"set_isa":            {[]byte{lnsSetISA, 0x81, 1, lnsCopy}, row},
		"set_discriminator":  {[]byte{0, 2, 4, 7, lnsCopy}, with(func(r *Row) { r.Parts = true })},
		"discriminator 0":    {[]byte{0, 2, 4, 0, lnsCopy}, row},
		"another line":       {[]byte{0, 2, 4, 7, lnsCopy, lnsAdvanceLine, 2, lnsCopy}, with(func(r *Row) { r.Line += 2 })},
		"define_file":        {[]byte{0, 6, 3, 'b', 0, 0, 0, 0, lnsCopy}, row},
		"an unknown one":     {[]byte{0, 4, 0x80, 1, 2, 3, lnsCopy}, row},
		"nothing extended":   {[]byte{0, 0, lnsCopy}, row},
		"set_address":        {slices.Concat([]byte{0, 9, lneSetAddress}, words(0x2000), []byte{lnsCopy}), with(func(r *Row) { r.Addr = 0x2000 })},
		"set_address of 4":   {[]byte{0, 5, lneSetAddress, 0, 0x30, 0, 0, lnsCopy}, with(func(r *Row) { r.Addr = 0x3000 })},
	} {
		for _, version := range []int{2, 3, 4, 5} {
			p := lineProgram{version: version, code: append(from(c.code...), endSequence...)}
			lt := p.table(t, p.bytes())
			if lt == nil || len(lt.Rows) < 3 {
				t.Errorf("%s, version %d: %+v", name, version, lt)
				continue
			}
			got, end := lt.Rows[len(lt.Rows)-2], lt.Rows[len(lt.Rows)-1]
			if got != c.want || !end.End || end.Addr != got.Addr+1 || end.File != got.File {
				t.Errorf("%s, version %d: %+v, %+v, want %+v", name, version, got, end, c.want)
			}
			if name == "copy" && lt.File(got) != "/d/a.c" {
				t.Errorf("version %d: the file is %q of %q", version, lt.File(got), lt.Files)
			}
		}
	}
}

// TestSpecialOpcodes runs all special opcodes, by the formula of DWARF 5,
// 6.2.5.1.
func TestSpecialOpcodes(t *testing.T) {
	for op := 13; op < 256; op++ {
		p := lineProgram{version: 4, code: append(from(lnsAdvanceLine, 20, byte(op)), endSequence...)}
		lt := p.table(t, p.bytes())
		addr, line := 0x1000+uint64(op-13)/14, uint32(21-5+(op-13)%14)
		if r := lt.Rows[1]; len(lt.Rows) != 3 || r.Addr != addr || r.Line != line {
			t.Errorf("opcode %d: %+v, want %#x of line %d", op, r, addr, line)
		}
	}
}

// TestUnusualHeaders has opcode bases with fewer and more standard opcodes
// than there are, instructions of 4 bytes, and several operations in one.
func TestUnusualHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		p    lineProgram
		want Row
	}{
		"version 2's opcodes only": {lineProgram{version: 2, base: 10, code: append(from(10+14+7), endSequence...)}, Row{Addr: 0x1001, File: 1, Line: 3, Stmt: true}},
		"opcodes of the future":    {lineProgram{version: 4, base: 16, code: append(from(13, 0x81, 1, 5, 14, 15, 9, lnsAdvancePC, 3, lnsCopy), endSequence...)}, Row{Addr: 0x1003, File: 1, Line: 1, Stmt: true}},
		"instructions of 4 bytes":  {lineProgram{version: 4, minInst: 4, code: append(from(lnsAdvancePC, 3, lnsCopy), endSequence...)}, Row{Addr: 0x100c, File: 1, Line: 1, Stmt: true}},
		"three operations":         {lineProgram{version: 4, minInst: 16, maxOps: 3, code: append(from(lnsAdvancePC, 2, lnsAdvancePC, 2, lnsCopy), endSequence...)}, Row{Addr: 0x1010, File: 1, Line: 1, Stmt: true}},
	} {
		lt := c.p.table(t, c.p.bytes())
		if lt == nil || len(lt.Rows) != 3 || lt.Rows[1] != c.want {
			t.Errorf("%s: %+v, want %+v", name, lt, c.want)
		}
	}
}

// TestSequences has several sequences out of order, one that was thrown away,
// and asks for rows by address.
func TestSequences(t *testing.T) {
	at := func(addr uint64, line byte) []byte {
		return slices.Concat([]byte{0, 9, lneSetAddress}, words(addr), []byte{lnsAdvanceLine, line, lnsCopy, lnsAdvancePC, 8, lnsAdvanceLine, 1, lnsCopy, lnsAdvancePC, 8, 0, 1, lneEndSequence})
	}
	p := lineProgram{version: 4, code: slices.Concat(at(0x3000, 30), at(0, 9), at(0x1000, 10))}
	lt := p.table(t, p.bytes())
	if len(lt.Rows) != 6 {
		t.Fatalf("%+v", lt.Rows)
	}
	for pc, line := range map[uint64]uint32{0x1000: 11, 0x1007: 11, 0x1008: 12, 0x100f: 12, 0x3000: 31, 0x300f: 32} {
		if r, ok := lt.At(pc); !ok || r.Line != line {
			t.Errorf("%#x: %+v, %v, want line %d", pc, r, ok, line)
		}
	}
	for _, pc := range []uint64{0, 8, 0xfff, 0x1010, 0x2000, 0x3010, ^uint64(0)} {
		if r, ok := lt.At(pc); ok {
			t.Errorf("%#x has the row %+v", pc, r)
		}
	}
	if _, ok := (*LineTable)(nil).At(0x1000); ok {
		t.Error("no table has a row")
	}
}

// TestLinesCutShort cuts tables at each byte, and changes each byte of them.
func TestLinesCutShort(t *testing.T) {
	for _, version := range []int{2, 3, 4, 5} {
		p := lineProgram{version: version, code: append(from(lnsAdvancePC, 3, lnsCopy), endSequence...)}
		whole := p.bytes()
		for n := range whole {
			if lt := p.table(t, whole[:n:n]); lt != nil {
				t.Errorf("version %d: %d of %d bytes are a table", version, n, len(whole))
			}
		}
		for at := range whole {
			for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				b := slices.Clone(whole)
				b[at] = v
				lt := p.table(t, b)
				if lt == nil {
					continue
				}
				for _, r := range lt.Rows {
					lt.File(r)
				}
				if len(lt.Rows) > len(b) || len(lt.Files) > len(b) {
					t.Errorf("version %d, byte %d is %#x: %d rows of %d files", version, at, v, len(lt.Rows), len(lt.Files))
				}
				lt.At(0x1001)
			}
		}
	}
	for name, b := range map[string][]byte{
		"version 1":  lineProgram{version: 1}.bytes(),
		"version 6":  lineProgram{version: 6}.bytes(),
		"no section": nil,
	} {
		if lt := (lineProgram{}).table(t, b); lt != nil {
			t.Errorf("%s: %+v", name, lt)
		}
	}
}

// TestLineTableOfNothing: entries that take no room are no files, however many of
// them a header names.
func TestLineTableOfNothing(t *testing.T) {
	sec := sectionsOf(t, fixture.Build(t, "dwarf_vars.c", "-gdwarf-5", "-O2"))
	le := binary.LittleEndian
	for _, f := range []form{formFlagPresent, formImplicitConst} {
		table := []byte{255}
		for range 255 {
			table = append(table, lnctPath, byte(f))
		}
		table = append(table, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
		head := append([]byte{1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, table...)
		head = append(head, table...)
		body := append(le.AppendUint16(nil, 5), 8, 0)
		body = append(le.AppendUint32(body, uint32(len(head))), head...)
		sec.Line = append(le.AppendUint32(nil, uint32(len(body))), body...)
		for _, u := range New(sec, Options{}).Units() {
			if files := u.Files(); len(files) > 1 {
				t.Errorf("form %#x: %d files", f, len(files))
			}
		}
	}
}
