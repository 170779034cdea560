package vars

import (
	"debug/elf"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
	"kprobe/symbols/debuginfod"
)

// told is all that debug information says of some functions: their variables,
// and the frames of each address.
func told(t *testing.T, c *symbols.Cache, prog string) string {
	t.Helper()
	space, err := c.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, fn := range []string{"scalars", "pointers", "inliner", "by_value", "array"} {
		sites, err := space.Resolve(symbols.Place{Symbol: fn})
		if err != nil {
			t.Fatalf("%s: %v", fn, err)
		}
		for off := uint64(0); off < sites[0].Func.Size(); off++ {
			at, err := space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(sites[0].Addr) + off})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range space.Frames(at[0].Addr) {
				fmt.Fprintf(&b, "%s+%#x %s:%d\n", f.Func, off, filepath.Base(f.File), f.Line)
			}
			list, err := At(space, at[0]).Describe()
			if err != nil {
				fmt.Fprintln(&b, err)
				continue
			}
			for _, d := range list {
				v, err := At(space, at[0]).Variable(d.Name)
				if errors.Is(err, fetch.ErrNoValue) {
					// Compilers list fewer ranges of values at the entry in split files.
					d.Where, err = "", fetch.ErrNoValue
				}
				fmt.Fprintf(&b, "%s+%#x %+v %v %d %v %v\n", fn, off, d, v.Chain, v.Off, v.Type, err)
			}
		}
	}
	return b.String()
}

// tool runs a program in a directory.
func tool(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(fixture.NeedTool(t, name), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// byBuildID puts a debug file into a directory of them.
func byBuildID(t *testing.T, root, file string) {
	t.Helper()
	id := buildID(t, file)
	home := filepath.Join(root, ".build-id", id[:2])
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	tool(t, root, "mv", file, filepath.Join(home, id[2:]+".debug"))
}

func buildID(t *testing.T, file string) string {
	t.Helper()
	f, err := symbols.OpenFile(file)
	if err != nil || len(f.BuildID) < 10 {
		t.Fatal(f, err)
	}
	return f.BuildID
}

// shareDWZ moves what prog has in common with a twin to common.dwz. name says
// what is noted in prog of that file's place.
func shareDWZ(t *testing.T, dir string, name ...string) {
	t.Helper()
	tool(t, dir, "cp", "prog", "twin")
	tool(t, dir, "dwz", append(append([]string{"-m", "common.dwz"}, name...), "prog", "twin")...)
	tool(t, dir, "rm", "twin")
	f, err := elf.Open(filepath.Join(dir, "prog"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Section(".gnu_debugaltlink") == nil {
		t.Fatal("dwz shares nothing")
	}
}

// fetched has a server of the debug files in dir, and fetches those of a
// program, which then has none beside it.
func fetched(t *testing.T, dir string, c *symbols.Cache, prog string) {
	t.Helper()
	store := filepath.Join(dir, "store")
	for _, name := range []string{"prog.debug", "common.dwz"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			home := filepath.Join(store, "buildid", buildID(t, filepath.Join(dir, name)))
			tool(t, dir, "mkdir", "-p", home)
			tool(t, dir, "mv", name, filepath.Join(home, "debuginfo"))
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(store)))
	defer server.Close()
	c.Debuginfod = &debuginfod.Config{
		Servers: []string{server.URL}, Dir: filepath.Join(dir, "cache"), Timeout: time.Minute, MaxTime: time.Minute, MaxSize: 1 << 30,
	}
	space, err := new(symbols.Cache).OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := space.FetchDebug(t.Context(), debuginfod.New(*c.Debuginfod, t.Logf), symbols.Place{Symbol: "main"}); !got || err != nil {
		t.Fatalf("nothing was fetched: %v", err)
	}
	// All is here now: nobody is asked again.
	again, err := c.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	silent := func(f string, a ...any) { t.Errorf("asked again: "+f, a...) }
	if got, err := again.FetchDebug(t.Context(), debuginfod.New(*c.Debuginfod, silent), symbols.Place{Symbol: "main"}); got || err != nil {
		t.Errorf("fetched again: %v, %v", got, err)
	}
}

// TestWhereDebugInfoIs finds the same in every place that debug information
// can be, packed and split as it may be.
func TestWhereDebugInfoIs(t *testing.T) {
	cc := fixture.NeedCC(t)
	src := filepath.Join(fixture.Root(), "testdata", "dwarf_vars.c")
	build := func(t *testing.T, dir string, flags ...string) string {
		tool(t, dir, cc, append(flags, "-O2", "-o", "prog", src)...)
		return filepath.Join(dir, "prog")
	}
	for _, version := range []string{"-gdwarf-5", "-gdwarf-4"} {
		plain := build(t, t.TempDir(), version, "-g")
		want := told(t, &symbols.Cache{}, plain)
		if n := strings.Count(want, "\n"); n < 3000 || !strings.Contains(want, "counter") && !strings.Contains(want, "local") {
			t.Fatalf("only %d lines are told of the plain file:\n%.2000s", n, want)
		}
		separate := func(t *testing.T, dir string) string {
			prog := build(t, dir, version, "-g", "-Wl,--build-id")
			tool(t, dir, "objcopy", "--only-keep-debug", "prog", "prog.debug")
			tool(t, dir, "strip", "--strip-debug", "prog")
			return prog
		}
		for name, make := range map[string]func(t *testing.T, dir string, c *symbols.Cache) string{
			"debuglink": func(t *testing.T, dir string, _ *symbols.Cache) string {
				prog := separate(t, dir)
				tool(t, dir, "objcopy", "--add-gnu-debuglink=prog.debug", "prog")
				return prog
			},
			"debuglink in .debug": func(t *testing.T, dir string, _ *symbols.Cache) string {
				prog := separate(t, dir)
				tool(t, dir, "objcopy", "--add-gnu-debuglink=prog.debug", "prog")
				tool(t, dir, "mkdir", ".debug")
				tool(t, dir, "mv", "prog.debug", ".debug")
				return prog
			},
			"build-id": func(t *testing.T, dir string, c *symbols.Cache) string {
				prog := separate(t, dir)
				c.DebugDir = filepath.Join(dir, "root")
				byBuildID(t, c.DebugDir, filepath.Join(dir, "prog.debug"))
				return prog
			},
			"zlib": func(t *testing.T, dir string, _ *symbols.Cache) string {
				return build(t, dir, version, "-g", "-gz=zlib")
			},
			"zlib as GNU had it": func(t *testing.T, dir string, _ *symbols.Cache) string {
				prog := build(t, dir, version, "-g")
				tool(t, dir, "objcopy", "--compress-debug-sections=zlib-gnu", "prog")
				return prog
			},
			"zstd": func(t *testing.T, dir string, _ *symbols.Cache) string {
				prog := build(t, dir, version, "-g")
				tool(t, dir, "objcopy", "--compress-debug-sections=zstd", "prog")
				return prog
			},
			"split": func(t *testing.T, dir string, _ *symbols.Cache) string {
				return build(t, dir, version, "-g", "-gsplit-dwarf")
			},
			"split and moved": func(t *testing.T, dir string, _ *symbols.Cache) string {
				build(t, dir, version, "-g", "-gsplit-dwarf")
				moved := filepath.Join(dir, "moved")
				tool(t, dir, "mkdir", moved)
				tool(t, dir, "sh", "-c", "mv prog *.dwo moved")
				return filepath.Join(moved, "prog")
			},
			"dwz": func(t *testing.T, dir string, _ *symbols.Cache) string {
				prog := build(t, dir, version, "-g")
				tool(t, dir, "dwz", "prog")
				return prog
			},
			"dwz with a shared file": func(t *testing.T, dir string, _ *symbols.Cache) string {
				prog := build(t, dir, version, "-g")
				shareDWZ(t, dir, "-M", filepath.Join(dir, "common.dwz"))
				return prog
			},
			"dwz with a shared file, by its build-id": func(t *testing.T, dir string, c *symbols.Cache) string {
				prog := build(t, dir, version, "-g")
				shareDWZ(t, dir, "-M", "/nowhere/common.dwz")
				c.DebugDir = filepath.Join(dir, "root")
				byBuildID(t, c.DebugDir, filepath.Join(dir, "common.dwz"))
				return prog
			},
			"debuginfod": func(t *testing.T, dir string, c *symbols.Cache) string {
				prog := separate(t, dir)
				fetched(t, dir, c, prog)
				return prog
			},
			"debuginfod with a shared file": func(t *testing.T, dir string, c *symbols.Cache) string {
				prog := build(t, dir, version, "-g", "-Wl,--build-id")
				shareDWZ(t, dir, "-M", "/nowhere/common.dwz")
				tool(t, dir, "objcopy", "--only-keep-debug", "prog", "prog.debug")
				tool(t, dir, "strip", "--strip-debug", "prog")
				fetched(t, dir, c, prog)
				return prog
			},
			"package": func(t *testing.T, dir string, _ *symbols.Cache) string {
				prog := build(t, dir, version, "-g", "-gsplit-dwarf")
				tool(t, dir, "sh", "-c", fixture.NeedTool(t, "dwp")+" -e prog && rm *.dwo")
				return prog
			},
		} {
			if name == "package" && version == "-gdwarf-5" {
				continue // binutils' dwp makes none of version 5
			}
			t.Run(version[1:]+" "+name, func(t *testing.T) {
				var c symbols.Cache
				dir := t.TempDir()
				got := told(t, &c, make(t, dir, &c))
				if got != want {
					t.Errorf("what is told differs:\n%s", firstDifference(got, want))
				}
			})
		}
	}
}

// TestSplitByClang finds in clang's split files, alone and in packages of
// versions 4 and 5, what it finds in a whole one; and in a package of version 5
// of gcc's.
func TestSplitByClang(t *testing.T) {
	src := filepath.Join(fixture.Root(), "testdata", "dwarf_vars.c")
	clang := fixture.NeedTool(t, "clang")
	dwp := fixture.NeedTool(t, "llvm-dwp")
	for _, tt := range []struct{ cc, version string }{{clang, "-gdwarf-5"}, {clang, "-gdwarf-4"}, {fixture.NeedCC(t), "-gdwarf-5"}} {
		name := filepath.Base(tt.cc) + tt.version
		plain := t.TempDir()
		tool(t, plain, tt.cc, "-g", tt.version, "-O2", "-o", "prog", src)
		want := told(t, &symbols.Cache{}, filepath.Join(plain, "prog"))
		if n := strings.Count(want, "\n"); n < 2000 {
			t.Fatalf("%s: only %d lines are told of the plain file:\n%.2000s", name, n, want)
		}
		dir := t.TempDir()
		tool(t, dir, tt.cc, "-g", tt.version, "-O2", "-gsplit-dwarf", "-o", "prog", src)
		if got := told(t, &symbols.Cache{}, filepath.Join(dir, "prog")); got != want {
			t.Errorf("%s, split: what is told differs:\n%s", name, firstDifference(got, want))
		}
		tool(t, dir, "sh", "-c", dwp+" *.dwo -o prog.dwp && rm *.dwo")
		if got := told(t, &symbols.Cache{}, filepath.Join(dir, "prog")); got != want {
			t.Errorf("%s, in a package: what is told differs:\n%s", name, firstDifference(got, want))
		}
		tool(t, dir, "rm", "prog.dwp")
		if got := told(t, &symbols.Cache{}, filepath.Join(dir, "prog")); !strings.Contains(got, "can't be found") {
			t.Errorf("%s: nothing tells that the split file is missing:\n%.300s", name, got)
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n%s\nwant\n%s", i, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// TestStaleDebugFile refuses a debug file that is another program's.
func TestStaleDebugFile(t *testing.T) {
	cc := fixture.NeedCC(t)
	src := filepath.Join(fixture.Root(), "testdata", "dwarf_vars.c")
	dir := t.TempDir()
	tool(t, dir, cc, "-g", "-O2", "-o", "prog", src)
	tool(t, dir, "objcopy", "--only-keep-debug", "prog", "prog.debug")
	tool(t, dir, "strip", "--strip-debug", "prog")
	tool(t, dir, "objcopy", "--add-gnu-debuglink=prog.debug", "prog")
	tool(t, dir, cc, "-g", "-O0", "-o", "other", src)
	tool(t, dir, "objcopy", "--only-keep-debug", "other", "prog.debug")
	space, err := symbols.OpenFileSpace(filepath.Join(dir, "prog"))
	if err != nil {
		t.Fatal(err)
	}
	sites, err := space.Resolve(symbols.Place{Symbol: "scalars"})
	if err != nil {
		t.Fatal(err)
	}
	if file, line, ok := space.Source(sites[0].Addr); ok {
		t.Errorf("a debug file with another checksum is used: %s:%d", file, line)
	}
}
