package symbols

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols/debuginfo"
)

// manyLines is a running program of count functions, and a place by line in each.
func manyLines(t testing.TB, count int) (pid int, places []Place) {
	t.Helper()
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "__attribute__((noinline)) int f%d(int a) {\n  int b = a * %d;\n  return b + 1;\n}\n", i, i)
		places = append(places, Place{Kind: PlaceLine, File: "many_lines.c", Line: 4*i + 3})
	}
	b.WriteString("#include <stdio.h>\nint main(void) { int n = 0;\n")
	for i := range count {
		fmt.Fprintf(&b, "n += f%d(n);\n", i)
	}
	b.WriteString("puts(\"on\"); fflush(stdout); getchar(); return n; }\n")
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "many_lines.c"), filepath.Join(dir, "prog")
	if err := os.WriteFile(src, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, fixture.NeedCC(t), "-g", "-O0", "-o", prog, src)
	cmd := exec.Command(prog)
	_, out := fixture.Start(t, cmd)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, places
}

// BenchmarkLines finds forty places by line in a running program whose C library
// may have debug information, of which none is asked for; gdb finds them in its file.
func BenchmarkLines(b *testing.B) {
	pid, places := manyLines(b, 40)
	peer := []string{"-nx", "-batch", fmt.Sprintf("/proc/%d/exe", pid)}
	for _, p := range places {
		peer = append(peer, "-ex", fmt.Sprintf("info line %s:%d", p.File, p.Line))
	}
	besideGDB(b, peer, "starts at address", func() {
		s, err := OpenProcess(pid, nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range places {
			if sites, err := s.Resolve(p); err != nil || len(sites) != 1 {
				b.Fatal(p, sites, err)
			}
		}
	})
}

// BenchmarkClosure finds a closure of a program in Rust with the debug information of its
// standard library, by name; gdb finds the function that it is in.
func BenchmarkClosure(b *testing.B) {
	prog := fixture.Build(b, "values_rust.rs", "-g")
	st, err := os.Stat(prog)
	if err != nil {
		b.Fatal(err)
	}
	besideGDB(b, []string{"-nx", "-batch", prog, "-ex", "info line values_rust::closures"}, "starts at address", func() {
		s, err := OpenFileSpace(prog)
		if err != nil {
			b.Fatal(err)
		}
		if sites, err := s.Resolve(Place{Kind: PlaceSymbol, Symbol: "values_rust::closures::{closure#0}"}); err != nil || len(sites) != 1 {
			b.Fatal(sites, err)
		}
	})
	b.ReportMetric(float64(st.Size())/1e6, "file-MB")
}

// besideGDB tells the least time that find takes, and gdb with these arguments, whose output has a text.
func besideGDB(b *testing.B, args []string, text string, find func()) {
	b.Helper()
	gdb := fixture.NeedTool(b, "gdb")
	own, peer := time.Duration(0), time.Duration(0)
	for b.Loop() {
		from := time.Now()
		find()
		took := time.Since(from)
		if own == 0 || took < own {
			own = took
		}
		from = time.Now()
		out, err := exec.Command(gdb, args...).CombinedOutput()
		if took = time.Since(from); err != nil || !strings.Contains(string(out), text) {
			b.Fatalf("gdb: %v: %s", err, out)
		}
		if peer == 0 || took < peer {
			peer = took
		}
	}
	b.ReportMetric(own.Seconds()*1000, "kprobe-ms")
	b.ReportMetric(peer.Seconds()*1000, "gdb-ms")
	b.ReportMetric(peer.Seconds()/own.Seconds(), "gdb/kprobe")
	b.ReportMetric(0, "ns/op")
}

// TestMayHaveSource: of compressed debug information no name of a line table is
// denied, whoever made it; a file that isn't there is told without unpacking the
// rest, and what was unpacked serves when the rest is read.
func TestMayHaveSource(t *testing.T) {
	for _, flags := range [][]string{
		{"-gdwarf-5", "-gz=zlib"}, {"-gdwarf-4", "-gz=zlib"}, {"-gdwarf-2", "-gz=zlib"},
		{"-gdwarf-5", "-gsplit-dwarf", "-gz=zlib"}, {"-gdwarf-4", "-gsplit-dwarf", "-gz=zlib"}, {"-gdwarf-3", "-gz=zlib"},
	} {
		for _, cc := range []string{"gcc", "clang"} {
			name := cc + " " + strings.Join(flags, " ")
			dir := t.TempDir()
			prog := filepath.Join(dir, "prog")
			src := filepath.Join(fixture.Root(), "testdata/cli_loop.c")
			if _, err := os.Stat(src); err != nil {
				t.Fatal(err)
			}
			build := exec.Command(fixture.NeedTool(t, cc), append(slices.Clone(flags), "-o", prog, src)...)
			build.Dir = dir // where split files go
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
			f, err := OpenFile(prog)
			if err != nil {
				t.Fatal(err)
			}
			packed := f.im.section(".debug_info").packed() // not of a few bytes
			if packed == slices.Contains(flags, "-gsplit-dwarf") {
				t.Fatalf("%s: packed is %v", name, packed)
			}
			if packed && f.mayHaveSource("no_such_file.c") {
				t.Errorf("%s: may have a file that isn't there", name)
			}
			if f.debugRead.Load() {
				t.Errorf("%s: all was read for it", name)
			}
			var bases []string
			whole, err := OpenFile(prog)
			if err != nil {
				t.Fatal(err)
			}
			err = whole.ReadDebug(func(d *debuginfo.Data) error {
				for _, u := range d.Units() {
					for _, file := range u.Files() {
						bases = append(bases, baseWithoutPattern(file))
					}
				}
				return nil
			})
			if err != nil || !slices.Contains(bases, "cli_loop.c") {
				t.Fatalf("%s: %v, %v", name, bases, err)
			}
			for _, base := range bases {
				if !f.mayHaveSource(base) {
					t.Errorf("%s: %s is denied", name, base)
				}
			}
			var line int
			err = f.ReadDebug(func(d *debuginfo.Data) error {
				e, ok := d.FuncAt(uint64(mustFunc(t, f, "main")))
				if ok {
					_, line = declared(&e)
				}
				return nil
			})
			if err != nil || line == 0 {
				t.Errorf("%s: main is at line %d, %v", name, line, err)
			}
		}
	}
}

// mustFunc is the address of a function.
func mustFunc(t *testing.T, f *File, name string) Vaddr {
	t.Helper()
	for _, fn := range f.Funcs() {
		if fn.Symbol.Name == name {
			return fn.Start
		}
	}
	t.Fatalf("%s has no %s", f.Path, name)
	return 0
}
