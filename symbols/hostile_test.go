package symbols

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// exercise asks a file everything; what it answers must be in bounds.
func exercise(t testing.TB, f *File) {
	t.Helper()
	for _, fn := range f.Funcs() {
		if fn.End < fn.Start {
			t.Fatalf("function %+v ends before it starts", fn)
		}
		if got, ok := f.FuncAt(fn.Start); ok && (fn.Start < got.Start || fn.Start >= got.End && got.End > got.Start) {
			t.Fatalf("FuncAt(%v) = %+v", fn.Start, got)
		}
		if b, err := f.Text(fn.Start, 16); err == nil && (len(b) == 0 || len(b) > 16) {
			t.Fatalf("text of %d bytes", len(b))
		}
	}
	for _, v := range []Vaddr{0, 1, 0x1000, 0x401000, ^Vaddr(0), ^Vaddr(0) - 15, f.im.entry} {
		f.FuncAt(v)
		fdeAt(f.fdes(), v)
		f.Section(v)
		f.Executable(v)
		f.Text(v, 1<<40)
		f.Text(v, -1)
		f.OffToVaddr(Off(v))
		if o, ok := f.VaddrToOff(v); ok && uint64(o) >= uint64(f.im.size) {
			t.Fatalf("offset %v of %v", o, v)
		}
		f.Pointer(v)
		f.ReturnSlot(v)
		f.bias(Mapping{Start: Addr(v), Off: Off(v), Exec: true})
	}
	for _, name := range []string{"", "main", "x@plt", "printf@plt", "open@V", "ns::f", "FDE_0x1000", "FDE_0x", "_start", "@", "(", "operator<<"} {
		f.Lookup(name)
		f.Glob(name + "*")
	}
	f.IsGo()
	s := NewFileSpace(f)
	for _, p := range []Place{{Symbol: "main"}, {Symbol: "mian"}, {Kind: PlaceAddr, Value: uint64(f.im.entry)}, {Kind: PlaceOffset, Module: f.Path, Value: 64}} {
		s.Resolve(p)
	}
	s.Symbolize(Addr(f.im.entry))
	s.Data("", "stdout")
}

func TestNotELF(t *testing.T) {
	dir := t.TempDir()
	small := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	good, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(at int, b ...byte) []byte {
		out := slices.Clone(good)
		copy(out[at:], b)
		return out
	}
	for name, b := range map[string][]byte{
		"empty":                        {},
		"script":                       []byte("#!/bin/sh\necho this is a script that is longer than an ELF header is\n"),
		"header alone":                 good[:63],
		"32 bits":                      edit(4, 1),
		"big endian":                   edit(5, 2),
		"for ARM":                      edit(18, 0xb7, 0),
		"program headers past the end": edit(32, 0xff, 0xff, 0xff, 0xff),
		"program headers at -1":        edit(32, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"program headers of odd size":  edit(54, 1, 0),
		"too many program headers":     edit(56, 0xff, 0xff),
		"cut in the program headers":   good[:100],
		"a segment of impossible bounds": func() []byte {
			out := slices.Clone(good)
			for i := range int(binary.LittleEndian.Uint16(out[56:])) {
				h := out[int(binary.LittleEndian.Uint64(out[32:]))+i*sizeofPhdr:]
				binary.LittleEndian.PutUint64(h[16:], ^uint64(0)-10)
			}
			return out
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "_"))
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := OpenFile(path)
			var e *FormatError
			if !errors.As(err, &e) || !errors.Is(err, ErrBadELF) || e.Path != path || e.Why == "" {
				t.Errorf("%v, want a FormatError", err)
			}
		})
	}
	for _, path := range []string{dir, "/dev/null"} {
		if _, err := OpenFile(path); !errors.Is(err, ErrBadELF) {
			t.Errorf("%s: %v, want ErrBadELF", path, err)
		}
	}
	if _, err := OpenFile(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestDamagedTables: what is damaged behind the headers is left out, the rest
// stays.
func TestDamagedTables(t *testing.T) {
	good, err := os.ReadFile(fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource()))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("section table past the end", func(t *testing.T) {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint64(b[40:], uint64(len(b)))
		f, err := NewFile("damaged", b)
		if err != nil {
			t.Fatal(err)
		}
		if f.im.sections != nil {
			t.Error("has sections")
		}
		if got := f.Lookup("strlen"); got != nil {
			t.Errorf("strlen, which is undefined, is %v", got)
		}
		if len(f.fdes()) == 0 {
			t.Error("no unwinding ranges without sections")
		}
	})
	t.Run("symbols past the end", func(t *testing.T) {
		f, err := NewFile("damaged", slices.Clone(good))
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.im.sections {
			if f.im.sections[i].typ == elf.SHT_SYMTAB {
				f.im.sections[i].size = 1 << 62
			}
		}
		if err := f.tables().err; !errors.Is(err, ErrBadELF) {
			t.Errorf("the damage is told as %v, want ErrBadELF", err)
		}
		exercise(t, f)
	})
	t.Run("names at random", func(t *testing.T) {
		f, err := NewFile("damaged", slices.Clone(good))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for _, tab := range f.tables().list {
			for i := range tab.symbols {
				tab.symbols[i] = rawSymbol{vaddr: Vaddr(r.Uint64() >> (r.Uint32() & 63)), size: r.Uint64() >> (r.Uint32() & 63), name: r.Uint32() >> (r.Uint32() & 31),
					file: r.Uint32(), info: byte(r.Uint32()), shndx: uint16(r.Uint32()), version: uint16(r.Uint32())}
			}
		}
		exercise(t, f)
	})
}

// TestWithoutSections: a program whose section table was cut off is known by
// its dynamic symbols and unwinding ranges.
func TestWithoutSections(t *testing.T) {
	for _, hash := range []string{"gnu", "sysv"} {
		t.Run(hash, func(t *testing.T) {
			path := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", "-rdynamic", "-Wl,--hash-style="+hash, otherSource())
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			clear(b[40:48])
			clear(b[58:64])
			f, err := NewFile("cut", b)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"main", "sym_work", "sym_other", "sym_counter"} {
				want, got := whole.Lookup(name), f.Lookup(name)
				if len(got) != 1 || got[0].Vaddr != want[0].Vaddr {
					t.Errorf("%s is %+v, with sections %+v", name, got, want)
				}
			}
			if !slices.Equal(f.fdes(), whole.fdes()) {
				t.Errorf("%d ranges, with sections %d", len(f.fdes()), len(whole.fdes()))
			}
			if f.BuildID != whole.BuildID || f.BuildID == "" {
				t.Errorf("build-id %q, with sections %q", f.BuildID, whole.BuildID)
			}
			exercise(t, f)
		})
	}
}

// FuzzELF changes bytes of a small program: at says where, with is written
// there, and the file is cut at cut when that is inside it.
func FuzzELF(f *testing.F) {
	paths := []string{
		fixture.Build(f, "sym_main.c", "-O1", "-DDYNAMIC", "-s", otherSource()),
		fixture.Build(f, "sym_main.c", "-O1", "-DDYNAMIC", "-DIFUNC", otherSource()),
	}
	var seeds [][]byte
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	r := rand.New(rand.NewPCG(7, 7))
	f.Add(byte(0), uint32(0), []byte{}, uint32(1<<31))
	for range 300 {
		which := byte(r.Uint32() & 1)
		size := uint32(len(seeds[which]))
		at := r.Uint32N(size)
		switch r.Uint32N(3) {
		case 0: // in the headers
			at = r.Uint32N(1024)
		case 1: // in the section table
			at = uint32(binary.LittleEndian.Uint64(seeds[which][40:])) + r.Uint32N(2048)
		}
		with := make([]byte, 1+r.Uint32N(8))
		for i := range with {
			with[i] = [...]byte{0, 1, 0x7f, 0x80, 0xff, byte(r.Uint32())}[r.Uint32N(6)]
		}
		f.Add(which, at, with, uint32(1<<31))
	}
	f.Fuzz(func(t *testing.T, which byte, at uint32, with []byte, cut uint32) {
		b := slices.Clone(seeds[int(which)%len(seeds)])
		copy(b[min(int(at), len(b)):], with)
		if int(cut) < len(b) {
			b = b[:cut]
		}
		file, err := NewFile("fuzzed", b)
		if err != nil {
			if !errors.Is(err, ErrBadELF) {
				t.Fatalf("%v is no ErrBadELF", err)
			}
			return
		}
		exercise(t, file)
	})
}

// FuzzFrames reads unwinding records that anybody may have written.
func FuzzFrames(f *testing.F) {
	file, err := OpenFile(fixture.Build(f, "sym_main.c", "-O1", "-DDYNAMIC", otherSource()))
	if err != nil {
		f.Fatal(err)
	}
	b, v, ok := file.SectionData(".eh_frame")
	if !ok {
		f.Fatal("no .eh_frame")
	}
	f.Add(b, uint64(v))
	f.Add([]byte("\xff\xff\xff\xff\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, base uint64) {
		for _, r := range rangesOf(b, base) {
			if r.end <= r.start {
				t.Errorf("range %v-%v", r.start, r.end)
			}
		}
	})
}
