package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// registerNames are readelf's, by DWARF number.
var registerNames = strings.Fields("rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 ra")

// text is a row as readelf prints it: CFA, then the registers of its columns.
func (r Rule) text() string {
	switch r.Kind {
	case AtCFA:
		return fmt.Sprintf("c%+d", r.Off)
	case InRegister:
		return fmt.Sprintf("%s%+d", registerNames[r.Reg], r.Off)
	case IsCFA:
		return fmt.Sprintf("v%+d", r.Off)
	case AtExpr, IsExpr:
		return "exp"
	case SameValue:
		return "s"
	}
	return "u"
}

func ehSection(t testing.TB, path string) *Section {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".eh_frame")
	b, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	return &Section{Bytes: b, Addr: s.Addr, EH: true}
}

// TestAgainstReadelf compares each row of a program's and the C library's
// frames with the one that readelf works out.
func TestAgainstReadelf(t *testing.T) {
	for _, path := range []string{
		fixture.Build(t, "dwarf_vars.c", "-g", "-O2"), fixture.Build(t, "dwarf_vars.cc", "-g", "-O0"),
		fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"),
	} {
		table := New(ehSection(t, path))
		cmd := exec.Command(fixture.NeedTool(t, "readelf"), "--debug-dump=frames-interp", path)
		out, err := cmd.Output() // it fails when a debug file that it looks for is missing
		if len(out) == 0 {
			t.Fatal(err)
		}
		rows, bad := 0, 0
		var columns []string
		inFDE := false
		for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
			w := strings.Fields(sc.Text())
			switch {
			case len(w) > 3 && (w[3] == "FDE" || w[3] == "CIE"):
				inFDE = w[3] == "FDE"
			case len(w) > 1 && w[0] == "LOC":
				columns = w[2:]
			case inFDE && len(w) == len(columns)+2 && len(w[0]) == 16:
				pc, err := strconv.ParseUint(w[0], 16, 64)
				if err != nil {
					continue
				}
				rows++
				row, ok := table.At(pc)
				got := row.CFA.text()
				for _, c := range columns {
					if i := slices.Index(registerNames, c); i >= 0 {
						got += " " + row.Regs[i].text()
					}
				}
				if want := strings.Join(w[1:], " "); !ok || got != want {
					if bad++; bad < 6 {
						t.Errorf("%s at %#x: %s, readelf has %s", path, pc, got, want)
					}
				}
			}
		}
		t.Logf("%s: %d rows, %d differ", path, rows, bad)
		if rows < 20 {
			t.Errorf("%s: only %d rows", path, rows)
		}
	}
}

// TestFind: what is looked for alone is what the table has.
func TestFind(t *testing.T) {
	s := ehSection(t, fixture.Build(t, "dwarf_vars.cc", "-g", "-O0"))
	table := New(s)
	found := 0
	for _, f := range table.fdes {
		for _, pc := range []uint64{f.low - 1, f.low, f.low + 1, f.high - 1, f.high} {
			want, ok := table.At(pc)
			got, gok := Find(pc, s)
			if gok != ok || !reflect.DeepEqual(got, want) {
				t.Fatalf("%#x: %v, %v; the table has %v, %v", pc, got, gok, want, ok)
			}
			if ok {
				found++
			}
		}
	}
	if found == 0 {
		t.Error("nothing was found")
	}
	if _, ok := Find(1, s); ok {
		t.Error("something describes address 1")
	}
}

// TestHostileFrames damages frames: every question must end.
func TestHostileFrames(t *testing.T) {
	whole := ehSection(t, fixture.Build(t, "dwarf_vars.cc", "-g", "-O0"))
	rnd := rand.New(rand.NewSource(3))
	known := 0
	for round := range 400 {
		s := &Section{slices.Clone(whole.Bytes), whole.Addr, true}
		for range round {
			s.Bytes[rnd.Intn(len(s.Bytes))] = byte(rnd.Int())
		}
		table := New(s)
		for _, f := range table.fdes[:min(len(table.fdes), 200)] {
			if _, ok := table.At(f.low + (f.high-f.low)/2); ok {
				known++
			}
		}
	}
	if known < 1000 {
		t.Errorf("only %d rows were known", known)
	}
}

// FuzzFrames reads arbitrary sections.
func FuzzFrames(f *testing.F) {
	f.Add(ehSection(f, fixture.Build(f, "dwarf_vars.c", "-g", "-O2")).Bytes, true)
	f.Add([]byte{12, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 1, 0x78, 16, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, b []byte, eh bool) {
		table := New(&Section{Bytes: b, Addr: 0x2000, EH: eh})
		for _, x := range table.fdes {
			table.At(x.low)
			table.At(x.high - 1)
		}
	})
}

// TestSingle: an entry that is read alone has the rows that the table has. What is damaged has none.
func TestSingle(t *testing.T) {
	s := ehSection(t, fixture.Build(t, "dwarf_vars.cc", "-g", "-O0"))
	read := func(at uint64, n int) []byte {
		if off := at - s.Addr; off < uint64(len(s.Bytes)) {
			return s.Bytes[off:min(off+uint64(n), uint64(len(s.Bytes)))]
		}
		return nil
	}
	var entries []uint64
	for at := uint64(0); at+4 <= uint64(len(s.Bytes)); {
		entries = append(entries, s.Addr+at)
		at += 4 + uint64(binary.LittleEndian.Uint32(s.Bytes[at:]))
	}
	table := New(s)
	for _, f := range table.fdes {
		for pc := f.low - 1; pc <= f.high; pc++ {
			want, wok := table.At(pc)
			found := 0
			for _, at := range entries {
				row, ok := Single(pc, at, read)
				if ok {
					found++
				}
				if ok && !reflect.DeepEqual(row, want) {
					t.Fatalf("%#x: %v; the table has %v", pc, row, want)
				}
			}
			if (found == 1) != wok {
				t.Fatalf("%d entries describe %#x; the table has it: %v", found, pc, wok)
			}
		}
	}
	rnd := rand.New(rand.NewSource(5))
	whole := slices.Clone(s.Bytes)
	for range 20000 {
		copy(s.Bytes, whole)
		for range 3 {
			s.Bytes[rnd.Intn(len(s.Bytes))] = byte(rnd.Intn(256))
		}
		for i, at := range entries {
			Single(table.fdes[i%len(table.fdes)].low+1, at, read) // must not panic
		}
	}
}
