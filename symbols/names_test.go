package symbols

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

func openFixture(t testing.TB, name string, flags ...string) (*Space, *File) {
	t.Helper()
	s, err := OpenFileSpace(fixture.Build(t, name, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Modules()[0].File
}

func TestCPlusPlusNames(t *testing.T) {
	s, f := openFixture(t, "sym_names.cc", "-O0")
	tests := []struct {
		name, mangled string // "" is ambiguous
	}{
		{"ns::f(int)", "_ZN2ns1fEi"},
		{"ns::f(char const*, unsigned long)", "_ZN2ns1fEPKcm"},
		{"ns::f(char const *,unsigned long)", "_ZN2ns1fEPKcm"},
		{"_ZN2ns1fEi", "_ZN2ns1fEi"},
		{"ns::alone", "_ZN2ns5aloneEiPKc"},
		{"ns::f", ""},
		{"ns::inner::Shape::area", "_ZNK2ns5inner5Shape4areaEv"},
		{"ns::inner::Shape::area() const", "_ZNK2ns5inner5Shape4areaEv"},
		{"ns::inner::Shape::operator*", "_ZNK2ns5inner5ShapemlEi"},
		{"ns::inner::Shape::operator[]", "_ZNK2ns5inner5ShapeixEi"},
		{"ns::inner::Shape::operator()", "_ZN2ns5inner5ShapeclEii"},
		{"ns::inner::Shape::operator bool", "_ZNK2ns5inner5ShapecvbEv"},
		{"ns::inner::Shape::operator new", "_ZN2ns5inner5ShapenwEm"},
		{"ns::inner::Shape::Shape", "_ZN2ns5inner5ShapeC1Ei"},
		{"ns::inner::Shape::~Shape", "_ZN2ns5inner5ShapeD1Ev"},
		{"operator+", "_ZplRKN2ns5inner5ShapeES3_"},
		{"ns::twice<int>(int)", "_ZN2ns5twiceIiEET_S1_"},
		{"int ns::twice<int>(int)", "_ZN2ns5twiceIiEET_S1_"},
		{"ns::twice<double>", "_ZN2ns5twiceIdEET_S1_"},
		{"ns::twice", ""},
		{"(anonymous namespace)::hidden_away", "_ZN12_GLOBAL__N_111hidden_awayEi"},
		{"(anonymous_namespace)::hidden_away", "_ZN12_GLOBAL__N_111hidden_awayEi"},
		{"tagged", "_Z6taggedB5cxx11i"},
		{"tagged[abi:cxx11](int)", "_Z6taggedB5cxx11i"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sites, err := s.Resolve(Place{Symbol: tt.name})
			if tt.mangled == "" {
				var e *AmbiguousError
				if !errors.As(err, &e) || len(e.Candidates) != 2 {
					t.Fatalf("%v, %v, want two candidates", sites, err)
				}
				for _, c := range e.Candidates {
					if again, err := s.Resolve(placeOf(c.Text)); err != nil || len(again) != 1 {
						t.Errorf("candidate %s: %v, %v", c.Text, again, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(sites) != 1 {
				t.Fatalf("%d sites, want 1", len(sites))
			}
			want := f.Lookup(tt.mangled)
			if len(want) == 0 || sites[0].Vaddr != want[0].Vaddr {
				t.Fatalf("at %v, want %+v", sites[0].Vaddr, want)
			}
			again, err := s.Resolve(Place{Symbol: sites[0].Name()})
			if err != nil || again[0].Addr != sites[0].Addr {
				t.Errorf("printed as %s, which is %v, %v", sites[0].Name(), again, err)
			}
		})
	}
	for _, name := range []string{"f", "ns", "ns::", "area", "ns::g", "ns::f(long)", "operator", "Shape::area"} {
		if got, err := s.Resolve(Place{Symbol: name}); !errors.Is(err, ErrNoSymbol) {
			t.Errorf("%s is %v, %v, want ErrNoSymbol", name, got, err)
		}
	}
}

func TestGlobOverCPlusPlus(t *testing.T) {
	s, _ := openFixture(t, "sym_names.cc", "-O0")
	for pattern, want := range map[string]int{
		"ns::f*": 2, "ns::inner::Shape::*": 9, "*::hidden_away*": 1, "ns::twice*": 2, "hidden*": 0, "_ZN2ns1f*": 2, "tagged*": 1, "ns::[ft]*": 4,
	} {
		sites, err := s.Resolve(Place{Symbol: pattern})
		if want == 0 {
			if !errors.Is(err, ErrNoSymbol) {
				t.Errorf("%s: %v, %v, want ErrNoSymbol", pattern, sites, err)
			}
			continue
		}
		if err != nil || len(sites) != want {
			var names []string
			for _, x := range sites {
				names = append(names, x.Name())
			}
			t.Errorf("%s: %d sites %q, %v, want %d", pattern, len(sites), names, err, want)
		}
	}
}

// TestDemangledIsFound: what c++filt prints for a name of libstdc++ is found.
func TestDemangledIsFound(t *testing.T) {
	path := fixture.NeedFile(t, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6", "/usr/lib/libstdc++.so.6")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var sample []Func
	for i, fn := range f.Funcs() {
		if i%53 == 0 && strings.HasPrefix(fn.Symbol.Name, "_Z") {
			sample = append(sample, fn)
		}
	}
	var in strings.Builder
	for _, fn := range sample {
		in.WriteString(fn.Symbol.Name + "\n")
	}
	cmd := exec.Command(fixture.NeedTool(t, "c++filt"))
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(sample) || len(sample) < 30 {
		t.Fatalf("c++filt has %d lines for %d names", len(lines), len(sample))
	}
	for i, fn := range sample {
		for _, name := range []string{lines[i], fn.Symbol.Demangled()} {
			found := f.Lookup(name)
			if !slices.ContainsFunc(found, func(s Symbol) bool { return s.Vaddr == fn.Start }) {
				t.Errorf("%s (%s) is not found: %v", name, fn.Symbol.Name, found)
			}
		}
	}
}

func TestRustNames(t *testing.T) {
	for _, mangling := range []string{"legacy", "v0"} {
		t.Run(mangling, func(t *testing.T) {
			flags := []string{"-Copt-level=1", "-Cdebuginfo=0"}
			if mangling == "v0" {
				flags = append(flags, "-Csymbol-mangling-version=v0")
			}
			s, f := openFixture(t, "sym_names.rs", flags...)
			for _, name := range []string{"sym_names::shop::open", "sym_names::shop::Till::pay", "sym_names::main",
				"<sym_names::shop::Till as sym_names::shop::Counts>::count"} {
				if mangling == "v0" && strings.HasSuffix(name, "Till::pay") {
					name = "<sym_names::shop::Till>::pay"
				}
				sites, err := s.Resolve(Place{Symbol: name})
				if err != nil || len(sites) != 1 {
					t.Errorf("%s: %v, %v", name, sites, err)
					continue
				}
				fn := sites[0].Func
				for _, again := range []string{sites[0].Name(), fn.Symbol.Name, fn.Symbol.Demangled()} {
					if x, err := s.Resolve(Place{Symbol: again}); err != nil || x[0].Addr != sites[0].Addr {
						t.Errorf("%s by %s: %v, %v", name, again, x, err)
					}
				}
				if hash := rustHash(fn.Symbol.Name); hash != "" {
					if x := f.Lookup(name + "::" + hash); len(x) != 1 || x[0].Vaddr != fn.Start {
						t.Errorf("%s with its hash is %v", name, x)
					}
				}
			}
			if sites, err := s.Resolve(Place{Symbol: "sym_names::shop::*"}); err != nil || len(sites) < 1 {
				t.Errorf("sym_names::shop::*: %v, %v", sites, err)
			}
		})
	}
}

func TestStrippedGo(t *testing.T) {
	for name, flags := range map[string][]string{
		"stripped":     {"--ldflags=-s -w"},
		"not stripped": nil,
		"PIE":          {"--ldflags=-s -w", "-buildmode=pie"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := openFixture(t, "sym_go.go", flags...)
			if !f.IsGo() {
				t.Error("is no Go file")
			}
			for _, fn := range []string{"main.main", "main.(*till).pay", "main.openTill", "strings.Repeat", "runtime.mallocgc"} {
				sites, err := s.Resolve(Place{Symbol: fn})
				if err != nil || len(sites) != 1 || sites[0].Name() != fn {
					t.Errorf("%s: %v, %v", fn, sites, err)
					continue
				}
				if got, ok := f.FuncAt(sites[0].Vaddr + 3); !ok || got.Symbol.Name != fn || got.Start != sites[0].Vaddr {
					t.Errorf("FuncAt %s+3 is %+v", fn, got)
				}
				text, err := f.Text(sites[0].Vaddr, 4)
				if err != nil || len(text) != 4 {
					t.Errorf("text of %s: %v", fn, err)
				}
			}
			if n := len(f.Funcs()); n < 1000 {
				t.Errorf("%d functions", n)
			}
		})
	}
	_, c := openFixture(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	if c.IsGo() {
		t.Error("a C program is taken for Go")
	}
}

// TestGoTableAgreesWithSymtab: the functions of a stripped program are where
// the symbol table of the same program, not stripped, has them.
func TestGoTableAgreesWithSymtab(t *testing.T) {
	path := fixture.Build(t, "sym_go.go")
	stripped := filepath.Join(t.TempDir(), "stripped")
	run(t, "objcopy", "--strip-all", path, stripped)
	full, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := OpenFile(stripped)
	if err != nil {
		t.Fatal(err)
	}
	if len(bare.tables().list) != 1 {
		t.Fatalf("%d tables in a stripped program, want Go's alone", len(bare.tables().list))
	}
	same := 0
	for _, fn := range full.Funcs() {
		if !strings.HasPrefix(fn.Symbol.Name, "main.") && !strings.HasPrefix(fn.Symbol.Name, "fmt.") {
			continue
		}
		got, ok := bare.FuncAt(fn.Start)
		if !ok || got.Symbol.Name != fn.Symbol.Name || got.Start != fn.Start || got.End < fn.End || got.End > fn.End+32 {
			t.Errorf("%s is %v-%v, the stripped file has %+v", fn.Symbol.Name, fn.Start, fn.End, got)
		}
		same++
	}
	if same < 20 {
		t.Errorf("only %d functions compared", same)
	}
}

// TestStartAt: StartAt and EachExtent know of functions what FuncAt and Funcs do.
func TestStartAt(t *testing.T) {
	f, err := OpenFile(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	look := func(v Vaddr) {
		t.Helper()
		fn, known := f.FuncAt(v)
		if start, ok := f.StartAt(v); ok != known || start != fn.Start {
			t.Errorf("%v is of the function at %v, %v; FuncAt says %v, %v", v, start, ok, fn.Start, known)
		}
	}
	for _, fn := range f.Funcs() {
		for _, v := range []Vaddr{fn.Start - 1, fn.Start, fn.Start + 1, fn.End - 1, fn.End} {
			look(v)
		}
	}
	list, n := f.Funcs(), 0
	for start, end := range f.EachExtent() {
		if n == len(list) || list[n].Start != start || list[n].End != end {
			t.Fatalf("function %d of %d extends from %v to %v", n, len(list), start, end)
		}
		n++
	}
	if n != len(list) {
		t.Errorf("%d functions of %d", n, len(list))
	}
	for _, s := range f.plt() {
		look(s.Vaddr)
		look(s.Vaddr + 3)
	}
	look(0)
	look(^Vaddr(0))
}
