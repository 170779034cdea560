package debuginfo

import (
	"bytes"
	"debug/dwarf"
	"slices"
	"testing"

	"kprobe/symbols/dwread"
)

// allForms are all forms that are known, for loops over them.
var allForms = []form{
	formAddr, formBlock2, formBlock4, formData2, formData4, formData8, formString, formBlock, formBlock1, formData1,
	formFlag, formSdata, formStrp, formUdata, formRefAddr, formRef1, formRef2, formRef4, formRef8, formRefUdata,
	formSecOffset, formExprloc, formFlagPresent, formStrx, formAddrx, formRefSup4, formStrpSup, formData16, formLineStrp,
	formRefSig8, formImplicitConst, formLoclistx, formRnglistx, formRefSup8, formStrx1, formStrx2, formStrx3, formStrx4,
	formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex, formGNUStrIndex, formGNURefAlt, formGNUStrpAlt,
}

var (
	dwarf32 = format{addrSize: 8, version: 5}
	dwarf64 = format{dwarf64: true, addrSize: 8, version: 5}
	small   = format{addrSize: 4, version: 5}
	two     = format{addrSize: 4, version: 2}
)

// TestForms reads a value of each form: the number or bytes, and how long it
// is.
func TestForms(t *testing.T) {
	in := []byte{0x81, 0x02, 0x83, 0x04, 0x85, 0x06, 0x87, 0x08, 0x89, 0x0a, 0x8b, 0x0c, 0x8d, 0x0e, 0x8f, 0x10, 0x91, 0, 0x93}
	const eight, four = 0x0887068504830281, 0x04830281
	for _, c := range []struct {
		f    form
		m    format
		u    uint64
		b    []byte
		size int
	}{
		{formAddr, dwarf32, eight, nil, 8},
		{formAddr, small, four, nil, 4},
		{formData1, dwarf32, 0x81, nil, 1},
		{formRef1, dwarf32, 0x81, nil, 1},
		{formFlag, dwarf32, 0x81, nil, 1},
		{formStrx1, dwarf32, 0x81, nil, 1},
		{formAddrx1, dwarf32, 0x81, nil, 1},
		{formData2, dwarf32, 0x0281, nil, 2},
		{formRef2, dwarf32, 0x0281, nil, 2},
		{formStrx2, dwarf32, 0x0281, nil, 2},
		{formAddrx2, dwarf32, 0x0281, nil, 2},
		{formStrx3, dwarf32, 0x830281, nil, 3},
		{formAddrx3, dwarf64, 0x830281, nil, 3},
		{formData4, dwarf32, four, nil, 4},
		{formRef4, dwarf64, four, nil, 4},
		{formStrx4, dwarf32, four, nil, 4},
		{formAddrx4, dwarf32, four, nil, 4},
		{formRefSup4, dwarf64, four, nil, 4},
		{formData8, dwarf32, eight, nil, 8},
		{formRef8, small, eight, nil, 8},
		{formRefSig8, dwarf32, eight, nil, 8},
		{formRefSup8, dwarf32, eight, nil, 8},
		{formData16, dwarf32, 0, in[:16], 16},
		{formSdata, dwarf32, 0x101, nil, 2},
		{formUdata, dwarf32, 0x101, nil, 2},
		{formRefUdata, dwarf32, 0x101, nil, 2},
		{formStrx, dwarf32, 0x101, nil, 2},
		{formAddrx, dwarf32, 0x101, nil, 2},
		{formLoclistx, dwarf32, 0x101, nil, 2},
		{formRnglistx, dwarf32, 0x101, nil, 2},
		{formGNUAddrIndex, dwarf32, 0x101, nil, 2},
		{formGNUStrIndex, dwarf32, 0x101, nil, 2},
		{formString, dwarf32, 0, in[:17], 18},
		{formStrp, dwarf32, four, nil, 4},
		{formStrp, dwarf64, eight, nil, 8},
		{formLineStrp, dwarf32, four, nil, 4},
		{formLineStrp, dwarf64, eight, nil, 8},
		{formStrpSup, dwarf32, four, nil, 4},
		{formStrpSup, dwarf64, eight, nil, 8},
		{formSecOffset, dwarf32, four, nil, 4},
		{formSecOffset, dwarf64, eight, nil, 8},
		{formGNURefAlt, dwarf32, four, nil, 4},
		{formGNURefAlt, dwarf64, eight, nil, 8},
		{formGNUStrpAlt, dwarf32, four, nil, 4},
		{formGNUStrpAlt, dwarf64, eight, nil, 8},
		{formRefAddr, dwarf32, four, nil, 4},
		{formRefAddr, dwarf64, eight, nil, 8},
		{formRefAddr, two, four, nil, 4}, // an address in version 2
		{formRefAddr, format{addrSize: 8, version: 2}, eight, nil, 8},
		{formFlagPresent, dwarf32, 1, nil, 0},
		{formImplicitConst, dwarf32, ^uint64(6), nil, 0},
	} {
		r := dwread.At(in, 0)
		u, b := value(&r, c.f, c.m, -7)
		if r.Bad || u != c.u || !bytes.Equal(b, c.b) || r.At != uint64(c.size) {
			t.Errorf("form %#x of %+v: %#x, % x, %d bytes, bad %v; want %#x, % x, %d", c.f, c.m, u, b, r.At, r.Bad, c.u, c.b, c.size)
		}
	}
	for _, c := range []struct {
		f    form
		in   []byte
		want []byte
	}{
		{formBlock1, []byte{2, 7, 8, 9}, []byte{7, 8}},
		{formBlock2, []byte{2, 0, 7, 8, 9}, []byte{7, 8}},
		{formBlock4, []byte{2, 0, 0, 0, 7, 8, 9}, []byte{7, 8}},
		{formBlock, []byte{0x82, 0, 7, 8, 9}, []byte{7, 8}},
		{formExprloc, []byte{2, 7, 8, 9}, []byte{7, 8}},
		{formBlock1, []byte{0}, []byte{}},
	} {
		r := dwread.At(c.in, 0)
		_, b := value(&r, c.f, dwarf32, 0)
		if r.Bad || !bytes.Equal(b, c.want) || len(b) > 0 && r.Left() != 1 || !(Val{form: c.f}).IsBlock() {
			t.Errorf("form %#x: % x, bad %v, %d left", c.f, b, r.Bad, r.Left())
		}
	}
	for f := form(0); f < 0x2000; f++ {
		r := dwread.At(in, 0)
		value(&r, f, dwarf32, 0)
		if known := slices.Contains(allForms, f); !known && !r.Bad {
			t.Errorf("form %#x is read, which nobody has defined", f)
		}
	}
}

// TestFormsCutShort cuts a value of each form at each byte, and gives blocks
// lengths that lie: that is bad, and nothing past the end is read.
func TestFormsCutShort(t *testing.T) {
	whole := slices.Concat([]byte{3, 0, 0, 0}, []byte("abcdefghijklmnop"), []byte{0})
	for _, m := range []format{dwarf32, dwarf64, small, two} {
		for _, f := range allForms {
			r := dwread.At(whole, 0)
			value(&r, f, m, 0)
			if r.Bad {
				t.Errorf("form %#x can't be read", f)
			}
			for n := range r.At {
				s := dwread.At(whole[:n:n], 0)
				if value(&s, f, m, 0); !s.Bad || s.At > n {
					t.Errorf("form %#x of %d bytes, %d of them there: at %d, bad %v", f, r.At, n, s.At, s.Bad)
				}
			}
			if n := fixedSize(f, m); n >= 0 && uint64(n) != r.At {
				t.Errorf("form %#x: %d bytes were read, a plan steps over %d", f, r.At, n)
			}
		}
	}
	for f, in := range map[form][]byte{
		formBlock1: {255, 1}, formBlock2: {255, 255, 1}, formBlock4: {255, 255, 255, 255, 1},
		formBlock: {255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1}, formExprloc: {0x80, 0x80, 4, 1}, formString: []byte("no end"),
	} {
		r := dwread.At(in, 0)
		if _, b := value(&r, f, dwarf32, 0); !r.Bad || b != nil || r.At != uint64(len(in)) {
			t.Errorf("form %#x: % x, bad %v", f, b, r.Bad)
		}
	}
}

// TestConstants tells numbers, signs and flags by their forms.
func TestConstants(t *testing.T) {
	for _, c := range []struct {
		v           Val
		plain, sign int64
		ok          bool
	}{
		{Val{form: formData1, U: 0xff}, 255, -1, true},
		{Val{form: formData2, U: 0x8000}, 32768, -32768, true},
		{Val{form: formData4, U: 0xfffffffe}, 4294967294, -2, true},
		{Val{form: formData8, U: ^uint64(0)}, -1, -1, true},
		{Val{form: formUdata, U: 300}, 300, 300, true},
		{Val{form: formSdata, U: ^uint64(4)}, -5, -5, true},
		{Val{form: formImplicitConst, U: ^uint64(4)}, -5, -5, true},
		{Val{form: formFlagPresent, U: 1}, 1, 1, true},
		{Val{form: formData16}, 0, 0, false},
		{Val{form: formString}, 0, 0, false},
		{Val{form: formRef4, U: 3}, 0, 0, false},
		{Val{form: formExprloc}, 0, 0, false},
	} {
		p, ok := c.v.Int()
		s, ok2 := c.v.Signed()
		if p != c.plain || s != c.sign || ok != c.ok || ok2 != c.ok {
			t.Errorf("%+v: %d, %d, %v", c.v, p, s, ok)
		}
		e := Entry{vals: []Val{c.v}}
		if e.Flag(c.v.Attr) != (c.v.U != 0) {
			t.Errorf("%+v as a flag", c.v)
		}
	}
	var none Entry
	if _, ok := none.Val(dwarf.AttrName); ok || none.Str(dwarf.AttrName) != "" || none.Name() != "" || none.Ranges() != nil || none.Flag(dwarf.AttrExternal) {
		t.Error("the zero Entry has something")
	}
	if _, ok := (Ref{}).Entry(); ok || !(Ref{}).IsZero() {
		t.Error("the zero Ref names an entry")
	}
	for range none.Children() {
		t.Error("the zero Entry has a child")
	}
}

// TestAbbreviations reads tables with codes in any order, implicit constants,
// and damage; what stands before it counts.
func TestAbbreviations(t *testing.T) {
	table := []byte{
		1, 0x11, 1, 0x03, 0x08, 0, 0, // 1: a unit with a name
		9, 0x34, 0, 0x3f, 0x19, 0x1c, 0x21, 0x7e, 0, 0, // 9: a variable, external, const_value -2
		2, 0x2e, 1, 0, 0, // 2: a function
		0xff, 0x7f, 0x24, 0, 0, 0, // 16383: a base type
		0,
	}
	a := readAbbrevs(table, 0)
	for code, want := range map[uint64]dwarf.Tag{1: dwarf.TagCompileUnit, 2: dwarf.TagSubprogram, 9: dwarf.TagVariable, 16383: dwarf.TagBaseType} {
		if got := a.find(code); got == nil || got.tag != want || got.children != (code < 3) {
			t.Errorf("code %d: %+v", code, got)
		}
	}
	for _, code := range []uint64{0, 3, 8, 10, ^uint64(0)} {
		if got := a.find(code); got != nil {
			t.Errorf("code %d: %+v", code, got)
		}
	}
	if v := a.find(9).attrs; len(v) != 2 || v[1].form != formImplicitConst || v[1].implicit != -2 {
		t.Errorf("%+v", v)
	}
	ends := map[int]int{7: 1, 17: 2, 22: 3, 28: 4} // bytes → entries that are whole
	for n := range table {
		cut := readAbbrevs(table[:n], 0)
		want := 0
		for at, count := range ends {
			if n >= at {
				want = max(want, count)
			}
		}
		if got := len(cut.dense) + len(cut.sparse); got != want {
			t.Errorf("of %d bytes: %d entries, want %d", n, got, want)
		}
	}
	if a := readAbbrevs(table, uint64(len(table)+1)); a.find(1) != nil {
		t.Error("a table past the end has entries")
	}
	many := slices.Concat([]byte{1, 0x11, 0}, slices.Repeat([]byte{3, 8}, maxAttrs+1), []byte{0, 0, 0})
	if a := readAbbrevs(many, 0); a.find(1) != nil {
		t.Errorf("an entry has %d attributes", len(a.find(1).attrs))
	}
	if a := readAbbrevs(table, 7); a.find(9) == nil || a.find(1) != nil {
		t.Error("a table in the middle is read from its offset")
	}
}
