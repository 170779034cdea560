package debuginfo

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"io"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// programs are builds by all compilers, of all versions of DWARF.
func programs(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{
		"go":   fixture.Build(t, "dwarf_vars.go", "-ldflags=-compressdwarf=false"),
		"rust": fixture.Build(t, "dwarf_vars.rs", "-g"),
		"c++":  fixture.Build(t, "dwarf_vars.cc", "-g", "-O2"),
	}
	for _, v := range []string{"-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"} {
		out["gcc "+v] = fixture.Build(t, "dwarf_vars.c", v, "-O2")
	}
	t.Setenv("CC", fixture.NeedTool(t, "clang"))
	for _, v := range []string{"-gdwarf-2", "-gdwarf-4", "-gdwarf-5"} {
		out["clang "+v] = fixture.Build(t, "dwarf_vars.c", v, "-O2")
	}
	return out
}

// TestAgainstStandard compares every entry, its name, its reference and its
// ranges, and every row of the line tables, with what Go's debug/dwarf reads.
func TestAgainstStandard(t *testing.T) {
	for name, path := range programs(t) {
		t.Run(name, func(t *testing.T) {
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			std, err := f.DWARF()
			if err != nil {
				t.Fatal(err)
			}
			d := New(sectionsOf(t, path), Options{})
			entries, rows, r := 0, 0, std.Reader()
			for _, u := range d.Units() {
				u.walk(func(e *Entry, _ int) bool {
					w, err := r.Next()
					for err == nil && w != nil && w.Tag == 0 {
						w, err = r.Next()
					}
					if err != nil || w == nil {
						t.Fatalf("%#x: %v, %v", e.off, w, err)
					}
					entries++
					sameEntry(t, std, e, w)
					return true
				})
				root, _, _ := u.entryAt(u.first)
				rows += sameLines(t, std, u, dwarf.Offset(root.off))
			}
			if w, err := r.Next(); err != nil || w != nil && w.Tag != 0 {
				t.Errorf("there is more: %v, %v", w, err)
			}
			if entries < 150 || rows < 100 {
				t.Errorf("only %d entries and %d rows", entries, rows)
			}
			t.Logf("%d entries, %d rows", entries, rows)
		})
	}
}

func sameEntry(t *testing.T, std *dwarf.Data, e *Entry, w *dwarf.Entry) {
	t.Helper()
	if uint64(w.Offset) != e.off || w.Tag != e.tag || w.Children != e.children || len(w.Field) != len(e.vals) {
		t.Fatalf("%#x %v %v with %d values, want %#x %v %v with %d", e.off, e.tag, e.children, len(e.vals), w.Offset, w.Tag, w.Children, len(w.Field))
	}
	for i, f := range w.Field {
		v := e.vals[i]
		if v.Attr != f.Attr {
			t.Fatalf("%#x has %v, want %v", e.off, v.Attr, f.Attr)
		}
		switch want := f.Val.(type) {
		case string:
			if got := e.Str(f.Attr); got != want {
				t.Errorf("%#x %v is %q, want %q", e.off, f.Attr, got, want)
			}
		case dwarf.Offset:
			if r, ok := e.RefTo(f.Attr); !ok || r.off != uint64(want) {
				t.Errorf("%#x %v is %#x, %v, want %#x", e.off, f.Attr, r.off, ok, want)
			}
		case bool:
			if e.Flag(f.Attr) != want {
				t.Errorf("%#x %v is not %v", e.off, f.Attr, want)
			}
		case uint64:
			if f.Class == dwarf.ClassAddress {
				if got, ok := e.Address(f.Attr); !ok || got != want {
					t.Errorf("%#x %v is %#x, %v, want %#x", e.off, f.Attr, got, ok, want)
				}
			}
		case []byte:
			if !slices.Equal(v.B, want) {
				t.Errorf("%#x %v is % x, want % x", e.off, f.Attr, v.B, want)
			}
		}
	}
	var want []Range
	list, err := std.Ranges(w)
	for _, r := range list {
		if r[0] < r[1] && !dead(r[0]) {
			want = append(want, Range{r[0], r[1]})
		}
	}
	if got := e.Ranges(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%#x covers %x, want %x, %v", e.off, got, want, err)
	}
}

// sameLines compares the rows of a unit, by address: sequences come in another
// order.
func sameLines(t *testing.T, std *dwarf.Data, u *Unit, off dwarf.Offset) int {
	t.Helper()
	r := std.Reader()
	r.Seek(off)
	top, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := std.LineReader(top)
	if err != nil || lines == nil {
		return 0
	}
	table := u.Lines()
	if table == nil {
		t.Fatalf("%s has no line table", u.Name())
	}
	var want, seq []dwarf.LineEntry
	for {
		var w dwarf.LineEntry
		if err := lines.Next(&w); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if seq = append(seq, w); !w.EndSequence {
			continue
		}
		if len(seq) > 1 && !dead(seq[0].Address) { // what the linker threw away is left out
			slices.SortStableFunc(seq, func(x, y dwarf.LineEntry) int { return cmp.Compare(x.Address, y.Address) })
			want = append(want, seq...)
		}
		seq = nil
	}
	if len(want) != len(table.Rows) {
		t.Fatalf("%s has %d rows, want %d", u.Name(), len(table.Rows), len(want))
	}
	for i, w := range want {
		g := table.Rows[i]
		if g.Addr != w.Address || g.End != w.EndSequence || !g.End && (int(g.Line) != w.Line || g.Stmt != w.IsStmt || table.File(g) != w.File.Name) {
			t.Fatalf("row %d of %s is %+v of %s, want %+v of %s", i, u.Name(), g, table.File(g), w, w.File.Name)
		}
	}
	return len(want)
}
