package insn

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"kprobe/internal/fixture"
)

// TestTablesAgainstRelocations compares the tables that are found with what the
// linker was told of them: it knows every entry of every table of a program.
func TestTablesAgainstRelocations(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"pie", []string{"-O2", "-fPIE", "-pie"}},
		{"no-pie", []string{"-O2", "-fno-pie", "-no-pie"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := fixture.Build(t, "switches.c", append(c.flags, "-Wl,--emit-relocs")...)
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			entries := tableEntries(t, f)
			syms, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			text := f.Section(".text")
			code, err := text.Data()
			if err != nil {
				t.Fatal(err)
			}
			starts := map[uint64]bool{}
			var tables []Table
			bounded := 0
			for _, s := range syms {
				if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || s.Value < text.Addr || s.Value+s.Size > text.Addr+text.Size {
					continue
				}
				sw, err := Sweep(code[s.Value-text.Addr:][:s.Size], s.Value, SweepOptions{Read: readLoaded(f)})
				if err != nil {
					t.Fatal(err)
				}
				if s.Name == "looped" && len(sw.Tables()) != 2 {
					t.Errorf("of the two switches in a loop %d are found: %+v", len(sw.Tables()), sw.Tables())
				}
				for _, table := range sw.Tables() {
					starts[table.At] = true
					tables = append(tables, table)
				}
			}
			for _, table := range tables {
				if !table.Bounded {
					continue
				}
				bounded++
				at, want := table.At, map[uint64]bool{}
				for n := 0; entries[at] != 0 && (n == 0 || !starts[at]); n++ {
					size := entries[at]
					b := make([]byte, size)
					if err := readLoaded(f)(b, at); err != nil {
						t.Fatal(err)
					}
					if size == 8 {
						want[binary.LittleEndian.Uint64(b)] = true
					} else {
						want[table.At+uint64(int32(binary.LittleEndian.Uint32(b)))] = true
					}
					at += uint64(size)
				}
				for _, to := range table.Targets {
					if !want[to] {
						t.Errorf("the table at %#x doesn't lead to %#x", table.At, to)
					}
					delete(want, to)
				}
				for to := range want {
					t.Errorf("the table at %#x leads to %#x, too", table.At, to)
				}
			}
			t.Logf("%d tables, %d bounded", len(tables), bounded)
			if bounded == 0 {
				t.Error("no bounded table is found")
			}
		})
	}
}

// tableEntries gives the size of what the linker relocated in constants, by its
// address, where that refers to code.
func tableEntries(t *testing.T, f *elf.File) map[uint64]int {
	t.Helper()
	sec := f.Section(".rela.rodata")
	if sec == nil {
		t.Fatal("the constants have no relocations")
	}
	b, err := sec.Data()
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]int{}
	for ; len(b) >= 24; b = b[24:] {
		switch elf.R_X86_64(binary.LittleEndian.Uint64(b[8:]) & 0xffffffff) {
		case elf.R_X86_64_64:
			out[binary.LittleEndian.Uint64(b)] = 8
		case elf.R_X86_64_PC32:
			out[binary.LittleEndian.Uint64(b)] = 4
		}
	}
	return out
}

// readLoaded reads what a file loads at an address.
func readLoaded(f *elf.File) func(b []byte, at uint64) error {
	return func(b []byte, at uint64) error {
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && at >= p.Vaddr && at-p.Vaddr+uint64(len(b)) <= p.Filesz {
				_, err := p.ReadAt(b, int64(at-p.Vaddr))
				return err
			}
		}
		return ErrTruncated
	}
}
