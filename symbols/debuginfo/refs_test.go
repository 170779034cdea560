package debuginfo

import (
	"debug/dwarf"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// rootOf is the only unit of sections made of a version 5 unit with one entry
// that has one attribute.
func rootOf(t *testing.T, attr dwarf.Attr, f form, value []byte, sec Sections, o Options) (*Unit, Entry) {
	t.Helper()
	sec.Abbrev = slices.Concat([]byte{1, 0x11, 0, byte(attr)}, uleb(uint64(f)), []byte{0, 0, 0})
	sec.Info = handUnit(5, append([]byte{1}, value...)...)
	d := New(sec, o)
	if len(d.Units()) != 1 {
		t.Fatalf("%d units", len(d.Units()))
	}
	return d.Units()[0], d.Units()[0].root().entry
}

func uleb(v uint64) (b []byte) {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// TestStrings reads a name in each form, and through offsets that lie.
func TestStrings(t *testing.T) {
	sec := Sections{Str: []byte("zero\x00one\x00two\x00cut"), LineStr: []byte("line\x00other\x00"),
		StrOffsets: slices.Concat(make([]byte, 8), []byte{0, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 13, 0, 0, 0, 99, 0, 0, 0})}
	alt := New(Sections{Str: []byte("alt\x00shared\x00")}, Options{})
	for _, c := range []struct {
		f     form
		value []byte
		want  string
	}{
		{formString, []byte("here\x00"), "here"},
		{formString, []byte{0}, ""},
		{formStrp, []byte{5, 0, 0, 0}, "one"},
		{formStrp, []byte{6, 0, 0, 0}, "ne"}, // a tail that is shared
		{formStrp, []byte{13, 0, 0, 0}, ""},  // without its end
		{formStrp, []byte{0xff, 0xff, 0xff, 0xff}, ""},
		{formLineStrp, []byte{5, 0, 0, 0}, "other"},
		{formStrpSup, []byte{4, 0, 0, 0}, "shared"},
		{formGNUStrpAlt, []byte{0, 0, 0, 0}, "alt"},
		{formStrx, []byte{1}, "one"},
		{formStrx1, []byte{2}, "two"},
		{formStrx2, []byte{0, 0}, "zero"},
		{formStrx3, []byte{1, 0, 0}, "one"},
		{formStrx4, []byte{2, 0, 0, 0}, "two"},
		{formGNUStrIndex, []byte{1}, "one"},
		{formStrx, []byte{3}, ""},                                                       // cut
		{formStrx, []byte{4}, ""},                                                       // past .debug_str
		{formStrx, []byte{5}, ""},                                                       // past the table
		{formStrx, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, ""}, // far past it
		{formData4, []byte{0, 0, 0, 0}, ""},                                             // no string at all
	} {
		u, e := rootOf(t, dwarf.AttrName, c.f, c.value, sec, Options{Alt: alt})
		if got := e.Str(dwarf.AttrName); got != c.want || u.Name() != c.want {
			t.Errorf("form %#x of % x: %q, %q, want %q", c.f, c.value, got, u.Name(), c.want)
		}
	}
	for _, f := range []form{formStrpSup, formGNUStrpAlt} {
		if _, e := rootOf(t, dwarf.AttrName, f, []byte{0, 0, 0, 0}, sec, Options{}); e.Str(dwarf.AttrName) != "" {
			t.Errorf("form %#x has a string without the file that it is in", f)
		}
	}
}

// TestAddresses reads an address in each form; what is past the table is no
// address, and not 0.
func TestAddresses(t *testing.T) {
	sec := Sections{Addr: append(make([]byte, 8), words(0x1111, 0x2222, 0x3333)...)}
	for _, c := range []struct {
		f     form
		value []byte
		want  uint64 // 0 is none
	}{
		{formAddr, words(0x4444), 0x4444},
		{formAddrx, []byte{0}, 0x1111},
		{formAddrx, []byte{0x82, 0}, 0x3333},
		{formAddrx1, []byte{1}, 0x2222},
		{formAddrx2, []byte{2, 0}, 0x3333},
		{formAddrx3, []byte{1, 0, 0}, 0x2222},
		{formAddrx4, []byte{0, 0, 0, 0}, 0x1111},
		{formGNUAddrIndex, []byte{2}, 0x3333},
		{formAddrx, []byte{3}, 0},
		{formAddrx4, []byte{0xff, 0xff, 0xff, 0xff}, 0},
		{formAddrx, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f}, 0},
		{formAddrx, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20}, 0}, // times 8 is 0
		{formData8, words(0x4444), 0},
	} {
		_, e := rootOf(t, dwarf.AttrLowpc, c.f, c.value, sec, Options{})
		if got, ok := e.Address(dwarf.AttrLowpc); ok != (c.want != 0) || got != c.want {
			t.Errorf("form %#x of % x: %#x, %v, want %#x", c.f, c.value, got, ok, c.want)
		}
	}
}

// TestReferences follows a reference of each form; those that lead out of the
// unit, into its header or to a file that isn't there name nothing.
func TestReferences(t *testing.T) {
	altInfo := handUnit(5, 1)
	alt := New(Sections{Info: altInfo, Abbrev: []byte{1, 0x3c, 0, 0, 0, 0}}, Options{})
	const first = 12
	for _, c := range []struct {
		f     form
		value []byte
		ok    bool
		alt   bool
	}{
		{formRef1, []byte{first}, true, false},
		{formRef2, []byte{first, 0}, true, false},
		{formRef4, []byte{first, 0, 0, 0}, true, false},
		{formRef8, words(first), true, false},
		{formRefUdata, []byte{first}, true, false},
		{formRefAddr, []byte{first, 0, 0, 0}, true, false},
		{formRefSup4, []byte{first, 0, 0, 0}, true, true},
		{formRefSup8, words(first), true, true},
		{formGNURefAlt, []byte{first, 0, 0, 0}, true, true},
		{formRef1, []byte{3}, false, false},
		{formRef1, []byte{200}, false, false},
		{formRef8, words(^uint64(0)), false, false},
		{formRefAddr, []byte{2, 0, 0, 0}, false, false},
		{formRefAddr, []byte{0xff, 0xff, 0xff, 0xff}, false, false},
		{formRefSup8, words(1 << 40), false, true},
		{formRefSig8, words(0x1234), false, false},
		{formUdata, []byte{first}, false, false},
	} {
		_, e := rootOf(t, dwarf.AttrType, c.f, c.value, Sections{}, Options{Alt: alt})
		r, ok := e.RefTo(dwarf.AttrType)
		if ok != c.ok {
			t.Errorf("form %#x of % x: %+v, %v", c.f, c.value, r, ok)
			continue
		}
		if to, read := r.Entry(); c.ok && (!read || r.Offset() != first || (to.Tag() == dwarf.TagPartialUnit) != c.alt) {
			t.Errorf("form %#x of % x leads to %v", c.f, c.value, to.Tag())
		}
		if _, e := rootOf(t, dwarf.AttrType, c.f, c.value, Sections{}, Options{}); c.alt {
			if r, ok := e.RefTo(dwarf.AttrType); ok {
				t.Errorf("form %#x leads to %+v without the file that it is in", c.f, r)
			}
		}
	}
}

// TestIndirect has DW_FORM_indirect, which names the form in the entry; forms
// that would lead on from there are refused.
func TestIndirect(t *testing.T) {
	for _, c := range []struct {
		value []byte
		want  int64
		ok    bool
	}{
		{[]byte{byte(formData1), 7}, 7, true},
		{[]byte{byte(formSdata), 0x7f}, -1, true},
		{[]byte{byte(formData8), 1, 2, 0, 0, 0, 0, 0, 0}, 0x201, true},
		{[]byte{byte(formIndirect), byte(formData1), 7}, 0, false},
		{[]byte{byte(formImplicitConst), 7}, 0, false},
		{[]byte{0x7f, 7}, 0, false},
		{[]byte{byte(formData8), 1}, 0, false},
	} {
		u, e := rootOf(t, dwarf.AttrByteSize, formIndirect, c.value, Sections{}, Options{})
		got, ok := e.Int(dwarf.AttrByteSize)
		if u.root().ok != c.ok || c.ok && (!ok || got != c.want) {
			t.Errorf("% x: %d, %v, want %d, %v", c.value, got, ok, c.want, c.ok)
		}
	}
}

// TestAranges reads .debug_aranges: sets of units that exist count, with their
// padding; others, and those of segments, are passed over.
func TestAranges(t *testing.T) {
	set := func(version uint16, unit uint32, size, seg byte, list ...uint64) []byte {
		b := append(le.AppendUint32(le.AppendUint16(nil, version), unit), size, seg, 0, 0, 0, 0)
		b = append(b, words(append(list, 0, 0)...)...)
		return append(le.AppendUint32(nil, uint32(len(b))), b...)
	}
	good := set(2, 0, 8, 0, 0x1000, 0x10, 0, 5, 0x3000, 0x20, ^uint64(0), 9)
	aranges := slices.Concat(set(3, 0, 8, 0, 0x5000, 1), set(2, 7, 8, 0, 0x6000, 1), set(2, 0, 8, 4, 0x7000, 1), set(2, 0, 3, 0, 0x8000, 1), good)
	sec := Sections{Info: handUnit(5, 1), Abbrev: []byte{1, 0x11, 0, 0, 0, 0}, Aranges: aranges}
	for _, ask := range []int{1, fewQuestions + 2} { // one by one, and from the table
		d := New(sec, Options{})
		for range ask {
			d.UnitAt(0x99999)
		}
		for pc, want := range map[uint64]bool{0x1000: true, 0x100f: true, 0x301f: true, 0x1010: false, 0x3020: false, 2: false,
			0x5000: false, 0x6000: false, 0x7000: false, 0x8000: false, ^uint64(0): false} {
			if got := d.UnitAt(pc); (got != nil) != want {
				t.Errorf("asked %d times: %#x is in %v, want %v", ask, pc, got, want)
			}
		}
	}
	for n := range aranges {
		sec.Aranges = aranges[:n:n]
		if d := New(sec, Options{}); d.UnitAt(0x1000) != nil || d.UnitAt(0x5000) != nil {
			t.Errorf("%d of %d bytes have a unit", n, len(aranges))
		}
	}
}

// TestTypeUnits: a type that was moved to a unit of its own is found by its name,
// and by what refers to its signature.
func TestTypeUnits(t *testing.T) {
	for _, v := range []string{"-gdwarf-5", "-gdwarf-4"} {
		d := New(sectionsOf(t, fixture.Build(t, "dwarf_vars.cc", v, "-O0", "-fdebug-types-section")), Options{})
		box, ok := d.FindType("shapes::Box", nil)
		if !ok || box.Unit().kind != utType || box.Flag(dwarf.AttrDeclaration) {
			t.Errorf("%s: %+v, %t", v, box, ok)
			continue
		}
		stubs := 0
		for _, u := range d.Units() {
			u.walk(func(e *Entry, _ int) bool {
				if sig, ok := e.Val(dwarf.AttrSignature); ok && e.tag != dwarf.TagTypeUnit && sig.U == box.unit.id {
					stubs++
					if whole, ok := e.Ref().Entry(); !ok || whole.Ref() != box.Ref() {
						t.Errorf("%s: the entry at %#x is %#x", v, e.off, whole.off)
					}
				}
				return true
			})
		}
		if stubs == 0 {
			t.Errorf("%s: nothing refers to the type", v)
		}
	}
}
