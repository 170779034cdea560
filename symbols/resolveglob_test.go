package symbols

import (
	"errors"
	"slices"
	"testing"
)

// TestModulePatterns: a pattern for the module means each mapped file whose name, soname or
// path matches; those without the function are left out.
func TestModulePatterns(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC")
	const malloc = "malloc"
	names := func(sites []Site) (out []string) {
		for _, site := range sites {
			if !slices.Contains(out, site.Module.Name) {
				out = append(out, site.Module.Name)
			}
		}
		return out
	}
	for _, tt := range []struct {
		place Place
		want  []string // modules of the sites
	}{
		{Place{Module: "libc.*", Symbol: malloc}, []string{"libc.so.6"}},
		{Place{Module: "lib?.so.6", Symbol: malloc}, []string{"libc.so.6"}},
		{Place{Module: "/*/libc.so*", Symbol: malloc}, []string{"libc.so.6"}},
		{Place{Module: "*", Symbol: "sym_work"}, []string{"sym_main"}},
		{Place{Module: "sym_*", Symbol: "sym_w*"}, []string{"sym_main"}},
		{Place{Module: "*", Symbol: "__vdso_*"}, []string{"[vdso]"}},
	} {
		sites, err := s.Resolve(tt.place)
		if got := names(sites); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v (%v), want %v", tt.place, got, err, tt.want)
		}
		if !tt.place.IsGlob() {
			t.Errorf("%v is no pattern", tt.place)
		}
	}
	all, err := s.Resolve(Place{Module: "*", Symbol: "*"})
	if got := names(all); err != nil || len(got) < 4 {
		t.Errorf("*:*: %v (%v), want all modules", got, err)
	}
	seen := map[Addr]bool{}
	for _, site := range all {
		if seen[site.Addr] {
			t.Fatalf("*:* has %v twice", site.Addr)
		}
		seen[site.Addr] = true
	}
	if !seen[p.told["sym_work"]] || !seen[p.told["malloc"]] {
		t.Error("*:* lacks sym_work or malloc")
	}
	var none *NotFoundError
	if _, err := s.Resolve(Place{Module: "*", Symbol: "no_such_function"}); !errors.As(err, &none) || none.Where != "*" {
		t.Errorf("a function that no file has: %v", err)
	}
	if _, err := s.Resolve(Place{Module: "nolib*", Symbol: malloc}); !errors.Is(err, ErrNotMapped) {
		t.Errorf("a pattern that no module matches: %v", err)
	}
	// Addresses as in a file, and data, are of one module.
	if _, err := s.Resolve(Place{Kind: PlaceVaddr, Module: "lib*", Value: 0x1000}); !errors.Is(err, ErrNotMapped) {
		t.Errorf("an address in a pattern of modules: %v", err)
	}
	if _, _, err := s.Data("lib*", "environ"); !errors.Is(err, ErrNotMapped) {
		t.Errorf("data of a pattern of modules: %v", err)
	}
	if (Place{Module: "[vdso]", Symbol: "f"}).IsGlob() {
		t.Error("[vdso] is taken for a pattern")
	}
}
