package symbols

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"kprobe/symbols/unwind"
)

func TestJumpSlot(t *testing.T) {
	tests := []struct {
		name string
		code string
		at   Vaddr
		want Vaddr
		ok   bool
	}{
		{"plain", "\xff\x25\x10\x00\x00\x00", 0x1000, 0x1016, true},
		{"backwards", "\xff\x25\xf0\xff\xff\xff", 0x1000, 0xff6, true},
		{"bnd", "\xf2\xff\x25\x10\x00\x00\x00", 0x1000, 0x1017, true},
		{"endbr64", "\xf3\x0f\x1e\xfa\xff\x25\x10\x00\x00\x00", 0x1000, 0x101a, true},
		{"endbr64 and bnd", "\xf3\x0f\x1e\xfa\xf2\xff\x25\x10\x00\x00\x00", 0x1000, 0x101b, true},
		{"the first entry pushes", "\xff\x35\x10\x00\x00\x00", 0x1000, 0, false},
		{"another jump", "\xe9\x10\x00\x00\x00\x00", 0x1000, 0, false},
		{"cut short", "\xff\x25\x10", 0x1000, 0, false},
		{"prefixes alone", "\xf3\x0f\x1e\xfa\xf2", 0x1000, 0, false},
		{"empty", "", 0x1000, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := jumpSlot([]byte(tt.code), tt.at); got != tt.want || ok != tt.ok {
				t.Errorf("%v %v, want %v %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// Encodings of pointers: DW_EH_PE_* of the LSB.
const (
	peAbs    = 0x00
	peULEB   = 0x01
	peUdata2 = 0x02
	peUdata4 = 0x03
	peUdata8 = 0x04
	peSdata2 = 0x0a
	peSdata4 = 0x0b
	pePCRel  = 0x10
	peOmit   = 0xff
)

// rangesOf are the ranges of a .eh_frame at an address.
func rangesOf(b []byte, base uint64) (out []fde) {
	(&unwind.Section{Bytes: b, Addr: base, EH: true}).Ranges(func(low, high uint64) bool {
		out = append(out, fde{Vaddr(low), Vaddr(high)})
		return true
	})
	return out
}

func TestEncodedPointers(t *testing.T) {
	const base = 0x1000
	tests := []struct {
		name string
		enc  byte
		b    string
		want uint64
		ok   bool
	}{
		{"absolute", peAbs, "\x01\x02\x03\x04\x05\x06\x07\x08", 0x0807060504030201, true},
		{"2 bytes", peUdata2, "\xfe\xff", 0xfffe, true},
		{"2 bytes, signed", peSdata2, "\xfe\xff", ^uint64(1), true},
		{"4 bytes", peUdata4, "\xfe\xff\xff\xff", 0xfffffffe, true},
		{"4 bytes, signed", peSdata4, "\xfe\xff\xff\xff", ^uint64(1), true},
		{"relative", peSdata4 | pePCRel, "\x10\x00\x00\x00", base + 0x10, true},
		{"relative, backwards", peSdata4 | pePCRel, "\xf0\xff\xff\xff", base - 0x10, true},
		{"LEB128", peULEB, "\x80\x01", 128, true},
		{"LEB128 without an end", peULEB, "\x80\x80", 0, false},
		{"cut short", peUdata8, "\x01\x02\x03", 0, false},
		{"relative to data", 0x30 | peSdata4, "\x01\x02\x03\x04", 0, false},
		{"unknown", 0x07, "\x01\x02\x03\x04\x05\x06\x07\x08", 0, false},
		{"omitted", peOmit, "\x01\x02\x03\x04\x05\x06\x07\x08", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := unwind.Pointer([]byte(tt.b), 0, tt.enc, base); ok != tt.ok || ok && got != tt.want {
				t.Errorf("%#x %v, want %#x %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// record puts its length before the body of a record of .eh_frame.
func record(body ...byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// fdeRecord is a record at offset at that refers to the CIE at offset 0.
func fdeRecord(at int, start, size uint32) []byte {
	body := binary.LittleEndian.AppendUint32(nil, uint32(at+4))
	body = binary.LittleEndian.AppendUint32(body, start)
	body = binary.LittleEndian.AppendUint32(body, size)
	return record(append(body, 0)...) // no augmentation data
}

func TestFrameRecords(t *testing.T) {
	cie := func(aug string, data ...byte) []byte {
		body := append([]byte{0, 0, 0, 0, 1}, aug...)
		body = append(body, 0, 1, 0x78, 16, byte(len(data)))
		return record(append(body, data...)...)
	}
	plain := cie("zR", peUdata4)
	tests := []struct {
		name string
		b    []byte
		want []fde
	}{
		{"one", slices.Concat(plain, fdeRecord(len(plain), 0x100, 0x20)), []fde{{0x100, 0x120}}},
		{"two behind a terminator", slices.Concat(plain, fdeRecord(len(plain), 0x100, 0x20), make([]byte, 4), fdeRecord(0, 1, 1)), []fde{{0x100, 0x120}}},
		{"of no length", slices.Concat(plain, fdeRecord(len(plain), 0x100, 0)), nil},
		{"with a personality", func() []byte {
			c := cie("zPLR", peUdata4, 1, 2, 3, 4, peUdata4, peUdata4)
			return slices.Concat(c, fdeRecord(len(c), 0x100, 0x20))
		}(), []fde{{0x100, 0x120}}},
		{"of a signal frame", func() []byte {
			c := cie("zRS", peUdata4)
			return slices.Concat(c, fdeRecord(len(c), 0x100, 0x20))
		}(), []fde{{0x100, 0x120}}},
		{"of an unknown augmentation", func() []byte {
			c := cie("zQR", peUdata4)
			return slices.Concat(c, fdeRecord(len(c), 0x100, 0x20))
		}(), nil},
		{"of no CIE", slices.Concat(plain, fdeRecord(len(plain)-8, 0x100, 0x20)), nil},
		{"longer than the section", append(slices.Clone(plain), 0xf0, 0, 0, 0, 1, 0, 0, 0), nil},
		{"nothing", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := rangesOf(tt.b, 0); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestNoteBuildID(t *testing.T) {
	note := func(name string, typ uint32, desc string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(name)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
		b = binary.LittleEndian.AppendUint32(b, typ)
		for _, s := range []string{name, desc} {
			b = append(b, s...)
			for len(b)%4 != 0 {
				b = append(b, 0)
			}
		}
		return b
	}
	id := note("GNU\x00", 3, "\x01\xab\xcd")
	for name, tt := range map[string]struct {
		b    []byte
		want string
	}{
		"alone":             {id, "01abcd"},
		"behind another":    {slices.Concat(note("GNU\x00", 1, "12345"), id), "01abcd"},
		"of another vendor": {note("Go\x00\x00", 3, "x"), ""},
		"of another type":   {note("GNU\x00", 5, "x"), ""},
		"cut short":         {id[:13], ""},
		"of a huge length":  {[]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x03\x00\x00\x00GNU\x00"), ""},
		"empty":             {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := noteBuildID(tt.b); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestBias(t *testing.T) {
	f := &File{im: &image{segments: []segment{
		{typ: elf.PT_LOAD, flags: elf.PF_R, off: 0, vaddr: 0x400000, filesz: 0x800, memsz: 0x800},
		{typ: elf.PT_LOAD, flags: elf.PF_R | elf.PF_X, off: 0x1010, vaddr: 0x401010, filesz: 0x3000, memsz: 0x3000},
		{typ: elf.PT_LOAD, flags: elf.PF_R | elf.PF_W, off: 0x4010, vaddr: 0x405010, filesz: 0x100, memsz: 0x5000},
	}}}
	tests := []struct {
		name string
		m    Mapping
		want uint64
		ok   bool
	}{
		{"text where it wants to be", Mapping{Start: 0x401000, Off: 0x1000, Exec: true}, 0, true},
		{"text moved", Mapping{Start: 0x7f0000001000, Off: 0x1000, Exec: true}, 0x7effffc00000, true},
		{"the rest of text that was split", Mapping{Start: 0x7f0000003000, Off: 0x3000, Exec: true}, 0x7effffc00000, true},
		{"data on the page that text ends on", Mapping{Start: 0x7f0000005000, Off: 0x4000}, 0x7effffc00000, true},
		{"text on that page", Mapping{Start: 0x7f0000004000, Off: 0x4000, Exec: true}, 0x7effffc00000, true},
		{"headers", Mapping{Start: 0x7f0000000000, Off: 0}, 0x7effffc00000, true},
		{"headers, executable", Mapping{Start: 0x7f0000000000, Off: 0, Exec: true}, 0, false},
		{"behind all", Mapping{Start: 0x7f0000000000, Off: 0x9000}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := f.bias(tt.m); got != tt.want || ok != tt.ok {
				t.Errorf("%#x %v, want %#x %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestClones(t *testing.T) {
	for name, want := range map[string][2]string{
		"_ZN2ns1fEi":                         {"_ZN2ns1fEi", ""},
		"_ZN2ns1fEi.cold":                    {"_ZN2ns1fEi", ".cold"},
		"_ZN2ns1fEi.part.0.constprop.1":      {"_ZN2ns1fEi", ".part.0.constprop.1"},
		"_ZN3a..b3fun17h0123456789abcdefE":   {"_ZN3a..b3fun17h0123456789abcdefE", ""},
		"_ZN1a1b17h0123456789abcdefE.llvm.7": {"_ZN1a1b17h0123456789abcdefE", ".llvm.7"},
	} {
		if base, suffix := cutClone(name); base != want[0] || suffix != want[1] {
			t.Errorf("%s: %q %q, want %q", name, base, suffix, want)
		}
	}
	if forms := nameForms("_ZN2ns1fEi.cold"); !slices.Contains(forms, "ns::f.cold") || slices.Contains(forms, "ns::f") {
		t.Errorf("the cold part of ns::f is found as %q", forms)
	}
	if forms := nameForms("plain"); forms != nil {
		t.Errorf("a name that isn't mangled has the forms %q", forms)
	}
	if forms := nameForms("_Znonsense"); forms != nil {
		t.Errorf("a name that can't be demangled has the forms %q", forms)
	}
}

func TestDemangled(t *testing.T) {
	for name, want := range map[string]string{
		"main": "main", "_ZN2ns1fEi": "ns::f(int)", "_ZN2ns1fEi@plt": "ns::f(int)@plt", "printf@plt": "printf@plt", "_Z": "_Z",
		"_RNvC6_123foo3bar": "123foo::bar", "_Zbad": "_Zbad", "": "",
	} {
		if got := (Symbol{Name: name}).Demangled(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestMangledWords(t *testing.T) {
	for name, want := range map[string]string{
		"ns::f(int, Thing)":             "2ns 1f",
		"std::string::append":           "6append",
		"(anonymous namespace)::f(int)": "1f",
		"Shape::operator()(int, int)":   "5Shape",
		"std::operator<<":               "",
		"twice<int>":                    "twice",
		"a::b.cold":                     "cold a b",
		"__gnu_cxx::f":                  "__gnu_cxx 1f",
		"x::{{closure}}":                "x",
		"<u8 as core::fmt::Debug>::fmt": "fmt", // v0 writes u8 as h
		"r::f::{closure#0}":             "r f", // as NC
		"std::operator<< <a::B>":        "",    // what is in brackets may be joined
		"ns::Shape::~Shape":             "5Shape 5Shape 2ns",
	} {
		if got := strings.Join(mangledWords(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestOperatorCodes(t *testing.T) {
	for name, want := range map[string]string{
		"operator new(unsigned long)":   "nw",
		"operator new[](unsigned long)": "na nw",
		"std::operator<<":               "ls lt",
		"a::operator< <int>":            "ls lt",
		"V::operator->*":                "mi ng pm pt",
		"Shape::operator()(int, int)":   "cl",
		"Shape::operator int":           "",
		"my_operator":                   "",
		"f":                             "",
		"S::operator()(int)::T::g":      "cl", // the operator that it is in
		"operator\"\"_km":               "li",
		"operator delete[]":             "da dl",
	} {
		got := operatorCodes(name)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestNamesInsideNames: a symbol's name may be the tail of another string of
// the table.
func TestNamesInsideNames(t *testing.T) {
	tab := &table{names: "\x00_Z3foov\x00__Z3barv_foo\x00x\x00"}
	hits := tab.holding("foo")
	at := func(s string) uint32 { return uint32(strings.Index(tab.names, s)) }
	for name, want := range map[string]bool{"_Z3foov\x00": true, "oov\x00": false, "__Z3barv_foo": true, "_foo": true, "foo\x00": true, "oo\x00": false, "x\x00": false} {
		if got := hits.in(at(name)); got != want {
			t.Errorf("%q holds foo: %v, want %v (%v)", name, got, want, hits)
		}
	}
	if hits := tab.holding("nothing"); hits != nil || hits.in(1) {
		t.Errorf("nothing is found: %v", hits)
	}
	if hits := tab.holding(""); !hits.in(0) || !hits.in(99) {
		t.Error("the empty text is not in all names")
	}
}

func TestKindsAndBindings(t *testing.T) {
	for k, code := range map[SymbolKind]bool{KindFunc: true, KindIFunc: true, KindPLT: true, KindFDE: true, KindEntry: true, KindObject: false, KindTLS: false, 77: false} {
		if k.Code() != code || k.String() == "" {
			t.Errorf("%v is code: %v", k, k.Code())
		}
	}
	if Local.String() != "local" || Global.String() != "global" || Weak.String() != "weak" || Binding(9).String() != "binding 9" {
		t.Error("names of bindings")
	}
}

// FuzzGoTable reads function tables that anybody may have written.
func FuzzGoTable(f *testing.F) {
	head := make([]byte, 96)
	binary.LittleEndian.PutUint32(head, goMagic120)
	head[6], head[7] = 1, 8
	binary.LittleEndian.PutUint64(head[8:], 1)
	binary.LittleEndian.PutUint64(head[32:], 72)
	binary.LittleEndian.PutUint64(head[64:], 80)
	f.Add(head)
	f.Fuzz(func(t *testing.T, b []byte) {
		im := &image{r: strings.NewReader(string(b)), size: int64(len(b)),
			sections: []section{{name: ".gopclntab", size: uint64(len(b))}, {name: ".text", addr: 0x1000, size: 0x100}}}
		funcs := im.goFuncs()
		for v := Vaddr(0xff0); v < 0x1110; v += 16 {
			funcs.frameSize(v)
			funcs.named(v, "runtime.goexit")
		}
		tab := im.goTable()
		if tab == nil {
			return
		}
		for i := range tab.symbols {
			tab.name(&tab.symbols[i])
		}
	})
}

func TestParameterCount(t *testing.T) {
	for name, want := range map[string]int{
		"_Z1fv":                 0,
		"_Z1fi":                 1,
		"_Z1fiz":                1, // f(int, ...)
		"_Z1fPKcS0_":            2,
		"_ZN1A1gEdS_":           2,
		"_ZNK1A1gEd":            1,
		"_ZN1AC2Eii":            2,
		"_Z1hIJidEEvDpT_":       2,
		"_Z1hIJEEvDpT_":         0,
		"_Z1hIiJidEEvT_DpRKT0_": 3,
		"_ZN1ApsEv":             0,
		"_Z1fPFviE":             1,
		"_ZSt4moveIRiEONSt16remove_referenceIT_E4typeEOS2_": 1,
		"_Z1fi.part.0": 1,
	} {
		if n, ok := ParameterCount(name); !ok || n != want {
			t.Errorf("%s (%s): %d, %v; want %d", name, demangleName(name), n, ok, want)
		}
	}
	for _, name := range []string{"main", "_ZTV1A", "_Zbad", "_ZN4core3fmt5Write17h0123456789abcdefE"} {
		if n, ok := ParameterCount(name); ok {
			t.Errorf("%s: %d", name, n)
		}
	}
}
