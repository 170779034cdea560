package symbols

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols/debuginfo"
)

// TestSeparateDebugFiles: a stripped program has the names of its debug file,
// wherever that is.
func TestSeparateDebugFiles(t *testing.T) {
	whole := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", "-Wl,--build-id", otherSource())
	full, err := OpenFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	strip := func(t *testing.T, to string) {
		run(t, "objcopy", "--strip-all", whole, to)
	}
	tests := []struct {
		name  string
		make  func(t *testing.T, dir string) finder
		found bool
	}{
		{"none", func(t *testing.T, dir string) finder {
			strip(t, dir+"/prog")
			return finder{}
		}, false},
		{"beside the program", func(t *testing.T, dir string) finder {
			run(t, "objcopy", "--only-keep-debug", whole, dir+"/prog.debug")
			strip(t, dir+"/prog")
			run(t, "objcopy", "--add-gnu-debuglink="+dir+"/prog.debug", dir+"/prog")
			return finder{}
		}, true},
		{"in .debug", func(t *testing.T, dir string) finder {
			if err := os.Mkdir(dir+"/.debug", 0o755); err != nil {
				t.Fatal(err)
			}
			run(t, "objcopy", "--only-keep-debug", whole, dir+"/.debug/prog.debug")
			strip(t, dir+"/prog")
			run(t, "objcopy", "--add-gnu-debuglink="+dir+"/.debug/prog.debug", dir+"/prog")
			return finder{}
		}, true},
		{"of another build", func(t *testing.T, dir string) finder {
			run(t, "objcopy", "--only-keep-debug", whole, dir+"/prog.debug")
			strip(t, dir+"/prog")
			run(t, "objcopy", "--add-gnu-debuglink="+dir+"/prog.debug", dir+"/prog")
			b, err := os.ReadFile(dir + "/prog.debug")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+"/prog.debug", append(b, 0), 0o644); err != nil {
				t.Fatal(err)
			}
			return finder{}
		}, false},
		{"by build-id, in another root", func(t *testing.T, dir string) finder {
			strip(t, dir+"/prog")
			at := filepath.Join(dir, debugDir, ".build-id", full.BuildID[:2])
			if err := os.MkdirAll(at, 0o755); err != nil {
				t.Fatal(err)
			}
			run(t, "objcopy", "--only-keep-debug", whole, filepath.Join(at, full.BuildID[2:]+".debug"))
			return finder{root: dir}
		}, true},
		{"inside, packed", func(t *testing.T, dir string) finder {
			run(t, "objcopy", "--only-keep-debug", "--strip-debug", whole, dir+"/mini")
			run(t, "xz", dir+"/mini")
			strip(t, dir+"/prog")
			run(t, "objcopy", "--add-section", ".gnu_debugdata="+dir+"/mini.xz", dir+"/prog")
			return finder{}
		}, true},
		{"inside, damaged", func(t *testing.T, dir string) finder {
			if err := os.WriteFile(dir+"/mini.xz", []byte("\xfd7zXZ\x00 no"), 0o644); err != nil {
				t.Fatal(err)
			}
			strip(t, dir+"/prog")
			run(t, "objcopy", "--add-section", ".gnu_debugdata="+dir+"/mini.xz", dir+"/prog")
			return finder{}
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			found := tt.make(t, dir)
			f, err := new(Cache).open("", dir+"/prog", dir+"/prog", found)
			if err != nil {
				t.Fatal(err)
			}
			if f.BuildID == "" || f.BuildID != full.BuildID {
				t.Errorf("build-id %q, before it was stripped %q", f.BuildID, full.BuildID)
			}
			got, want := f.Lookup("only_here"), full.Lookup("only_here")
			_, err = NewFileSpace(f).Resolve(Place{Symbol: "only_here"})
			var missing *NotFoundError
			if other := errors.As(err, &missing) && missing.OtherBuild != nil; other != (tt.name == "of another build") {
				t.Errorf("a debug file of another build: %t, %v", other, err)
			}
			var unused *OtherBuildError
			err = f.ReadDebug(func(*debuginfo.Data) error { return nil })
			if other := errors.As(err, &unused) && unused.Path == dir+"/prog.debug"; other != (tt.name == "of another build") {
				t.Errorf("a debug file of another build: %t, %v", other, err)
			}
			if !tt.found {
				if got != nil {
					t.Errorf("only_here is %v", got)
				}
				return
			}
			if len(got) == 1 && got[0].File == "" {
				got[0].File = want[0].File // strip takes the names of source files for debug information
			}
			if !slices.Equal(got, want) || len(got) != 1 {
				t.Errorf("only_here is %+v, want %+v", got, want)
			}
			fn, ok := f.FuncAt(want[0].Vaddr + 1)
			if !ok || fn.Symbol.Name != "only_here" {
				t.Errorf("FuncAt only_here+1 is %+v", fn)
			}
		})
	}
}

// TestNamelessFunctions: a stripped program's functions are known by its
// unwinding ranges, and their made-up names are taken as input.
func TestNamelessFunctions(t *testing.T) {
	whole := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	full, err := OpenFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "stripped")
	run(t, "objcopy", "--strip-all", whole, path)
	s, err := OpenFileSpace(path)
	if err != nil {
		t.Fatal(err)
	}
	f := s.Modules()[0].File
	for _, name := range []string{"main", "sym_work", "only_here", "sym_other"} {
		want := full.Lookup(name)[0]
		fn, ok := f.FuncAt(want.Vaddr + Vaddr(want.Size-1))
		if !ok || fn.Start != want.Vaddr || fn.Size() != want.Size || fn.Symbol.Kind != KindFDE || fn.Symbol.Name != "FDE_"+want.Vaddr.String() {
			t.Errorf("%s is %+v, want %v+%d", name, fn, want.Vaddr, want.Size)
			continue
		}
		sites, err := s.Resolve(Place{Symbol: fn.Symbol.Name, Offset: 1})
		if err != nil || len(sites) != 1 || sites[0].Vaddr != want.Vaddr+1 || sites[0].Name() != fn.Symbol.Name+"+0x1" {
			t.Errorf("%s+1: %+v, %v", fn.Symbol.Name, sites, err)
		}
		text, off, size, _, ok := s.Symbolize(Addr(want.Vaddr + 2))
		if !ok || text != fn.Symbol.Name || off != 2 || size != want.Size {
			t.Errorf("symbolizes as %s+%d/%d", text, off, size)
		}
	}
	if sites, err := s.Resolve(Place{Symbol: "_start"}); err != nil || sites[0].Vaddr != f.im.entry {
		t.Errorf("_start is %v, %v, want the entry point %v", sites, err, f.im.entry)
	}
	for _, bad := range []string{"FDE_0x1", "FDE_", "FDE_0xzz", "FDE_" + (full.Lookup("main")[0].Vaddr + 1).String()} {
		if sites, err := s.Resolve(Place{Symbol: bad}); !errors.Is(err, ErrNoSymbol) {
			t.Errorf("%s: %v, %v, want ErrNoSymbol", bad, sites, err)
		}
	}
	names := 0
	for _, fn := range f.Funcs() {
		if fn.Symbol.Kind == KindFDE {
			names++
		}
		if fn.Symbol.Kind == KindPLT || strings.HasPrefix(f.Section(fn.Start), ".plt") {
			t.Errorf("a stub among the functions: %+v", fn)
		}
	}
	globbed, err := s.Resolve(Place{Symbol: "FDE_*"})
	if err != nil || len(globbed) != names || names < 5 {
		t.Errorf("FDE_*: %d sites, %v, want %d", len(globbed), err, names)
	}
	for _, fn := range f.Funcs() {
		if fn.Symbol.Kind != KindFDE {
			continue
		}
		// All but the last digit: it, and its neighbours in the same 16 bytes.
		pattern := fn.Symbol.Name[:len(fn.Symbol.Name)-1] + "?"
		some, err := s.Resolve(Place{Symbol: pattern})
		if err != nil || len(some) == 0 || len(some) > 16 {
			t.Errorf("%s: %d sites, %v", pattern, len(some), err)
		}
		for _, w := range some {
			if w.Vaddr&^15 != fn.Start&^15 {
				t.Errorf("%s finds %v", pattern, w.Vaddr)
			}
		}
		break
	}
}

// TestFunctionEnds: without sizes a function ends at the next, or where its
// unwinding range does; labels inside a function are no functions. The next may have no name,
// only an unwinding range.
func TestFunctionEnds(t *testing.T) {
	src := filepath.Join(t.TempDir(), "ends.s")
	text := `
	.globl first, second, third, outer, zlast
	.text
first:	nop
	nop
	ret
second:	ret
	.type third, @function
third:	.cfi_startproc
	nop
	ret
	.cfi_endproc
	.skip 16, 0xcc
	.type outer, @function
outer:	nop
inner_label:
	nop
	ret
	.size outer, . - outer
switch:	nop
	ret
.Lnameless:
	.cfi_startproc
	nop
	nop
	ret
	.cfi_endproc
zlast:	ret
`
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	path := fixture.BuildFile(t, src, "-nostdlib", "-shared")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]uint64{"first": 3, "second": 1, "third": 2, "outer": 3, "switch": 2, "zlast": 1} {
		sym := f.Lookup(name)
		if len(sym) != 1 {
			t.Fatalf("%s: %v", name, sym)
		}
		fn, ok := f.FuncAt(sym[0].Vaddr)
		if !ok || fn.Symbol.Name != name || fn.Size() != size {
			t.Errorf("%s is %+v, want %d bytes", name, fn, size)
		}
	}
	inner := f.Lookup("inner_label")
	if len(inner) != 1 {
		t.Fatalf("inner_label: %v", inner)
	}
	if fn, _ := f.FuncAt(inner[0].Vaddr); fn.Symbol.Name != "outer" {
		t.Errorf("inner_label lies in %s, want outer", fn.Symbol.Name)
	}
	if fn, ok := f.FuncAt(f.Lookup("third")[0].Vaddr + 5); ok {
		t.Errorf("padding lies in %+v", fn)
	}
	nameless := f.Lookup("switch")[0].Vaddr + 2
	if fn, ok := f.FuncAt(nameless + 1); !ok || fn.Symbol.Name != fdeName(nameless) || fn.Size() != 3 {
		t.Errorf("what follows switch is %+v, want %s with 3 bytes", fn, fdeName(nameless))
	}
	if all := f.Funcs(); !slices.ContainsFunc(all, func(fn Func) bool { return fn.Start == nameless }) {
		t.Errorf("no %s among the functions: %+v", fdeName(nameless), all)
	}
}
