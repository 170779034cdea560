package symbols

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// A glob over the lines of a file is what its lines are one by one.
func TestLineGlobs(t *testing.T) {
	const src = "dwarf_vars.c"
	for _, o := range []string{"-O0", "-O2"} {
		s, err := OpenFileSpace(fixture.Build(t, src, "-g", o))
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := s.FileLines("", src)
		if err != nil {
			t.Fatal(err)
		}
		addrs := func(p Place) []Addr {
			sites, err := s.Resolve(p)
			if err != nil {
				t.Fatalf("%s %s: %v", o, p, err)
			}
			var out []Addr
			for _, site := range sites {
				out = append(out, site.Addr)
			}
			return out
		}
		for _, glob := range []string{"*", "[1-9]?", "1*"} {
			var want []Addr
			for _, l := range list {
				if ok, _ := filepath.Match(glob, strconv.Itoa(l.Line)); ok {
					want = append(want, addrs(Place{Kind: PlaceLine, File: src, Line: l.Line})...)
				}
			}
			slices.Sort(want)
			want = slices.Compact(want)
			if got := addrs(Place{Kind: PlaceLine, File: src, Lines: glob}); !slices.Equal(got, want) || len(want) < 5 {
				t.Errorf("%s: %s:%s is %v, its lines are %v", o, src, glob, got, want)
			}
		}
		head := addrs(Place{Kind: PlaceLine, Symbol: "scalars", Lines: "*"})
		if short := addrs(Place{Kind: PlaceSymbol, Module: "scalars", Symbol: "*"}); !slices.Equal(short, head) {
			t.Errorf("%s: scalars:*, which names no file, is %v; the function's lines are %v", o, short, head)
		}
		if _, err := s.Resolve(Place{Kind: PlaceSymbol, Module: "neither", Symbol: "*"}); !errors.Is(err, ErrNotMapped) {
			t.Errorf("%s: neither:*, of neither a file nor a function: %v", o, err)
		}
		own, _, _, err := s.Lines(mustSite(t, s, "scalars"))
		for _, l := range own {
			if !slices.Contains(head, l.Addr) {
				t.Errorf("%s: scalars:* is %v, without line %d at %v", o, head, l.Line, l.Addr)
			}
		}
		if err != nil || len(own) < 4 {
			t.Errorf("%s: lines %+v, %v", o, own, err)
		}
		both := addrs(Place{Kind: PlaceLine, Symbol: "p*rs", Line: 2})
		if one := addrs(Place{Kind: PlaceLine, Symbol: "pointers", Line: 2}); !slices.Equal(both, one) {
			t.Errorf("%s: p*rs:2 is %v, pointers:2 is %v", o, both, one)
		}
		var le *LineError
		_, err = s.Resolve(Place{Kind: PlaceLine, File: src, Lines: "9???"})
		if !errors.As(err, &le) || le.After != list[0].Line || le.Before != list[len(list)-1].Line || !strings.Contains(err.Error(), "first line with code") {
			t.Errorf("%s: lines that are not there: %v", o, err)
		}
	}
}

func mustSite(t *testing.T, s *Space, name string) Site {
	t.Helper()
	sites, err := s.Resolve(Place{Symbol: name})
	if err != nil {
		t.Fatal(err)
	}
	return sites[0]
}

// TestLinesAgainstAddr2line asks addr2line for every place of every line of
// whole files: the line is the place's own, or that of a call that it is in.
// Optimized code has lines of no length, which start where others do that
// addr2line names; that they do so is taken from debug/dwarf.
func TestLinesAgainstAddr2line(t *testing.T) {
	for _, c := range []struct{ src, flags string }{
		{"dwarf_vars.c", "-g -O2"},
		{"dwarf_vars.c", "-g -O3"},
		{"dwarf_vars.cc", "-g -O0"},
		{"dwarf_vars.cc", "-g -O2"},
		{"stack_calls.cc", "-g -O2"},
	} {
		flags := strings.Fields(c.flags)
		t.Run(c.src+c.flags, func(t *testing.T) { linesAgree(t, fixture.Build(t, c.src, flags...), c.src) })
		t.Run("clang"+c.src+c.flags, func(t *testing.T) {
			tool := "clang"
			if filepath.Ext(c.src) == ".cc" {
				tool = "clang++"
			}
			out := filepath.Join(t.TempDir(), "prog")
			args := append(flags, "-pthread", "-o", out, filepath.Join(fixture.Root(), "testdata", c.src))
			if b, err := exec.Command(fixture.NeedTool(t, tool), args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			linesAgree(t, out, c.src)
		})
	}
}

func linesAgree(t *testing.T, path, src string) {
	s, err := OpenFileSpace(path)
	if err != nil {
		t.Fatal(err)
	}
	list, file, err := s.FileLines("", src)
	if err != nil {
		t.Fatal(err)
	}
	var at []Vaddr
	var want []string
	for _, l := range list {
		sites, err := s.Resolve(Place{Kind: PlaceLine, File: src, Line: l.Line})
		if err != nil {
			t.Errorf("%s:%d, which has code: %v", src, l.Line, err)
		}
		for _, site := range sites {
			at = append(at, site.Vaddr)
			want = append(want, placeText(file, l.Line))
		}
	}
	inlined, empty := 0, 0
	rows := emptyRows(t, path)
	for i, frames := range addr2line(t, path, at) {
		switch {
		case slices.ContainsFunc(frames, func(f told) bool { return samePlace(f.place, want[i]) }):
		case rows[emptyRow{uint64(at[i]), filepath.Base(want[i])}]:
			empty++
		default:
			t.Errorf("%v is a place of %s, addr2line says %+v", at[i], want[i], frames)
		}
		if len(frames) > 1 {
			inlined++
		}
	}
	t.Logf("%d places of %d lines, %d of them in inlined calls, %d of no length", len(at), len(list), inlined, empty)
	if len(list) < 20 {
		t.Errorf("%d lines", len(list))
	}
}

// emptyRow is a row of a line table that the next one starts at the place of.
type emptyRow struct {
	at    uint64
	place string // FILE:LINE
}

func emptyRows(t *testing.T, path string) map[emptyRow]bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	out := map[emptyRow]bool{}
	units := d.Reader()
	for {
		u, err := units.Next()
		if err != nil || u == nil {
			return out
		}
		units.SkipChildren()
		lines, err := d.LineReader(u)
		if err != nil || lines == nil {
			continue
		}
		var last, row dwarf.LineEntry
		for err = lines.Next(&row); err == nil; err = lines.Next(&row) {
			if last.File != nil && !last.EndSequence && last.Address == row.Address {
				out[emptyRow{last.Address, filepath.Base(placeText(last.File.Name, last.Line))}] = true
			}
			last = row
		}
		if err != io.EOF {
			t.Fatal(err)
		}
	}
}
