package symbols

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestPlaceNames: each name is accepted and means its function alone, and most
// are readable.
func TestPlaceNames(t *testing.T) {
	any := func(Place) bool { return true }
	tests := []struct {
		source string
		flags  []string
		has    []string
	}{
		{"sym_names.cc", []string{"-O0"}, []string{"ns::f(int)", "ns::f(char const*, unsigned long)", "(anonymous namespace)::hidden_away(int)",
			"double ns::twice<double>(double)", "ns::inner::Shape::operator bool() const", "main"}},
		{"sym_names.cc", []string{"-O2"}, []string{"ns::f(int)"}},
		{"sym_names.rs", nil, []string{"main"}},
		{"stack_calls.c", []string{"-O2"}, []string{"main"}},
		{"stack_calls.cc", []string{"-O2"}, []string{"main"}},
	}
	for _, tt := range tests {
		t.Run(tt.source+strings.Join(tt.flags, ""), func(t *testing.T) {
			s, f := openFixture(t, tt.source, tt.flags...)
			for _, raw := range []bool{false, true} {
				names := f.PlaceNames(raw, any)
				var all []string
				for _, fn := range f.Functions("*") {
					at := names.Of(&fn.Symbol)
					name := at.String()
					all = append(all, name)
					if at.Kind == PlaceVaddr {
						at.Module = s.Modules()[0].Name
					}
					sites, err := s.Resolve(at)
					if fn.Symbol.Kind == KindIFunc && errors.Is(err, ErrUnboundIFunc) {
						continue
					}
					if err != nil || len(sites) != 1 || sites[0].Vaddr != fn.Start {
						t.Errorf("%s for %s at %v: %v, %v", name, fn.Symbol.Name, fn.Start, sites, err)
					}
					if raw && at.Kind == PlaceSymbol && at.Symbol != fn.Symbol.Name {
						t.Errorf("raw %s is printed as %s", fn.Symbol.Name, name)
					}
				}
				for _, want := range tt.has {
					if !raw && !slices.Contains(all, want) {
						t.Errorf("%s is missing: %q", want, all)
					}
				}
				if few := slices.Compact(slices.Sorted(slices.Values(all))); len(few) != len(all) {
					t.Errorf("%d names of %d functions", len(few), len(all))
				}
			}
		})
	}
}

// TestPlaceNamesDistinct: what means several functions is not printed.
func TestPlaceNamesDistinct(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.cc", "static __attribute__((noinline)) int twin(int n) { asm(\"\"); return n + 1; }\nint other(int);\n"+
		"struct B { virtual ~B(); }; struct D : virtual B { int x; D(int); ~D(); }; B::~B() {} D::D(int n) : x(n) {} D::~D() {}\n"+
		"int name() asm(\"_Z4namev\"); int name() { return 1; }\nint tagged() asm(\"_Z4nameB2v2v\"); int tagged() { return 2; }\n"+
		"int main(int c, char **) { D d(c); return twin(c) + other(c); }\n")
	b := write("b.cc", "static __attribute__((noinline)) int twin(int n) { asm(\"\"); return n + 2; }\nint other(int n) { return twin(n); }\n")
	prog := filepath.Join(dir, "prog")
	if out, err := exec.Command(fixture.NeedTool(t, "g++"), "-O1", "-o", prog, a, b).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s, err := OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	f := s.Modules()[0].File
	names := f.PlaceNames(false, func(Place) bool { return true })
	got := map[string]string{}
	for _, fn := range f.Functions("*") {
		got[names.Of(&fn.Symbol).String()] = fn.Symbol.Name
	}
	for name, symbol := range map[string]string{
		"twin(int)@a.cc": "_ZL4twini", "twin(int)@b.cc": "_ZL4twini", "other(int)": "_Z5otheri",
		"name()": "_Z4namev", "name[abi:v2]()": "_Z4nameB2v2v",
		"_ZN1DC1Ei": "_ZN1DC1Ei", "_ZN1DC2Ei": "_ZN1DC2Ei",
	} {
		if got[name] != symbol {
			t.Errorf("%s is %q, want %s: %q", name, got[name], symbol, got)
		}
	}
	for _, name := range []string{"name()", "name[abi:v2]()"} {
		if sites, err := s.Resolve(Place{Symbol: name}); err != nil || len(sites) != 1 {
			t.Errorf("%s: %+v, %v", name, sites, err)
		}
	}
	if _, err := s.Resolve(Place{Symbol: "name"}); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("name: %v", err)
	}
	// A name that can't be written is not taken.
	names = f.PlaceNames(false, func(p Place) bool { return !strings.Contains(p.Symbol, "(") })
	if sym := f.Lookup("_Z5otheri"); len(sym) != 1 || names.Of(&sym[0]).Symbol != "_Z5otheri" {
		t.Errorf("%+v", sym)
	}
}

func TestFunctionsByPattern(t *testing.T) {
	_, f := openFixture(t, "sym_names.cc", "-O0")
	tests := []struct {
		pattern string
		want    []string
	}{
		{"ns::f", []string{"_ZN2ns1fEPKcm", "_ZN2ns1fEi"}},
		{"ns::f(int)", []string{"_ZN2ns1fEi"}},
		{"_ZN2ns1f*", []string{"_ZN2ns1fEPKcm", "_ZN2ns1fEi"}},
		{"ns::inner::Shape::operator[]", []string{"_ZNK2ns5inner5ShapeixEi"}},
		{"ns::inner::Shape::operator*", []string{"_ZNK2ns5inner5ShapemlEi"}},
		{"*::hidden_*", []string{"_ZN12_GLOBAL__N_111hidden_awayEi"}},
		{"ns::twice<*", []string{"_ZN2ns5twiceIdEET_S1_", "_ZN2ns5twiceIiEET_S1_"}},
		{"no_such*", nil},
	}
	for _, tt := range tests {
		var got []string
		for _, fn := range f.Functions(tt.pattern) {
			if fn.Size() == 0 {
				t.Errorf("%s has no size", fn.Symbol.Name)
			}
			got = append(got, fn.Symbol.Name)
		}
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.pattern, got, tt.want)
		}
	}
}

// TestNearReadable: a typo in a name that is mangled in the file is answered with
// readable names, which are accepted.
func TestNearReadable(t *testing.T) {
	s, _ := openFixture(t, "sym_names.cc", "-O0")
	for typo, want := range map[string]string{
		"ns::alnoe":              "ns::alone",
		"ns::alnoe(int)":         "ns::alone",
		"alnoe":                  "ns::alone",
		"ns::inner::Shape::aera": "ns::inner::Shape::area",
		"hidden_awya":            "(anonymousnamespace)::hidden_away",
	} {
		_, err := s.Resolve(Place{Symbol: typo})
		var e *NotFoundError
		if !errors.As(err, &e) || !slices.Contains(e.Near, want) {
			t.Errorf("%s: %v, want %s among the names", typo, err, want)
			continue
		}
		if sites, err := s.Resolve(Place{Symbol: want}); err != nil || len(sites) != 1 {
			t.Errorf("%s is offered: %v, %v", want, sites, err)
		}
	}
}
