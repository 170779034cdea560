package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestPrintedNamesAreTaken: a name that kprobe prints is a place that means the
// function it was printed for: in definitions as in the lists of functions, and
// what trace lines call a function, with -v and without.
func TestPrintedNamesAreTaken(t *testing.T) {
	tests := []struct {
		path   string
		has    []string // of the printed names
		deepen int      // names that are tried, of many
	}{
		{fixture.Build(t, "names_printed.cc", "-O2", "-std=c++20"), []string{
			`"lib::v2::M::operator()(int, int) const"`, `"lib::v2::M::operator<<(int) const"`, `"lib::v2::M::operator new[](unsigned long)"`,
			`"lib::v2::M::operator char const*() const"`, `"lib::v2::operator"" _kb(unsigned long long)"`, `"lib::v2::M::operator->*(int) const"`,
			`lib::v2::M::operator,(int)`, `"lib::v2::M::operator%(int) const"`, `"part(Big*, int) [clone .isra.0] [clone .cold]"`}, 1000},
		{fixture.Build(t, "names_printed.cc", "-O0", "-std=c++20"), []string{
			`"int (anonymous namespace)::call<twice(int)::{lambda(auto:1)#3}>(twice(int)::{lambda(auto:1)#3})"`}, 12},
		{fixture.Build(t, "names_printed.rs"), nil, 40},
		{fixture.Build(t, "names_printed.rs", "-C", "symbol-mangling-version=v0"), []string{
			`"<names_printed::main::{closure#0} as core::ops::function::FnOnce<(i32,)>>::call_once::{shim:vtable#0}"`}, 40},
		{fixture.Build(t, "sym_go.go"), nil, 200},
		{fixture.NeedFile(t, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"), []string{
			"_ZTv0_n24_NSdD0Ev"}, 12},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.path[strings.LastIndexByte(tt.path, '/')+1:], "/", "_"), func(t *testing.T) {
			r := kprobe(t, &fake{}, "", "functions", "-x", tt.path)
			if r.status != 0 {
				t.Fatalf("%+v", r)
			}
			printed := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
			for _, want := range tt.has {
				if !slices.Contains(printed, want) {
					t.Errorf("%s is missing", want)
				}
			}
			space, err := symbols.OpenFileSpace(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			m := space.Modules()[0]
			list := (&functionsOptions{}).list(m, "*")
			if len(list) != len(printed) {
				t.Fatalf("%d names of %d functions", len(printed), len(list))
			}
			for i := range list {
				if i%(1+len(list)/tt.deepen) == 0 || slices.Contains(tt.has, printed[i]) {
					takenBack(t, space, &list[i], printed[i])
				}
			}
		})
	}
}

// takenBack looks for a function by what is printed of it.
func takenBack(t *testing.T, space *symbols.Space, fn *listed, printed string) {
	t.Helper()
	resolve := func(text string) ([]symbols.Site, error) {
		d, err := fetch.Parse("p " + text + " a=$arg1")
		if err != nil {
			return nil, err
		}
		return space.Resolve(d.Place)
	}
	at := func(s symbols.Site) bool { return s.Vaddr == fn.Start }
	if sites, err := resolve(printed); !errors.Is(err, symbols.ErrUnboundIFunc) && (err != nil || len(sites) != 1 || !at(sites[0])) {
		t.Errorf("%s, printed for %s, means %d places: %v", printed, fn.Symbol.Name, len(sites), err)
	}
	if p, err := place(unquoted(printed)); err != nil || p != fn.place && fn.place.Kind != symbols.PlaceVaddr {
		t.Errorf("show %s: %+v, %v", printed, p, err)
	}
	_, glob := fetch.CutModule(unquoted(printed))
	if got := space.Modules()[0].File.Functions(glob); len(got) != 1 || got[0].Start != fn.Start {
		t.Errorf("functions %s: %d", printed, len(got))
	}
	for _, name := range []string{fn.Symbol.Demangled(), fn.Symbol.Short()} {
		sites, err := resolve(`"` + name + `"`)
		// Deleting destructors do their work by another one, which the name means.
		if !slices.ContainsFunc(sites, at) && !errors.Is(err, symbols.ErrAmbiguous) && !errors.Is(err, symbols.ErrUnboundIFunc) &&
			(err != nil || !strings.Contains(fn.Symbol.Name, "D0Ev") && !strings.Contains(fn.Symbol.Name, "D1Ev")) {
			t.Errorf("%s, as trace lines call %s, means %d places: %v", name, fn.Symbol.Name, len(sites), err)
		}
	}
}

func TestFunctionsTakesPlaces(t *testing.T) {
	prog := twins(t)
	for arg, want := range map[string]string{
		"twin@a.c": "twin@a.c\n", `"twin@b.c"`: "twin@b.c\n", "tw*@b.c": "twin@b.c\n", "main": "main\n",
	} {
		if r := kprobe(t, &fake{}, "", "functions", "-x", prog, arg); r.status != 0 || r.out != want {
			t.Errorf("%s: %+v", arg, r)
		}
	}
	cc := fixture.Build(t, "names_printed.cc", "-O2", "-std=c++20")
	for arg, want := range map[string]string{
		`lib::v2::M::operator\[\]`: "\"lib::v2::M::operator[](int) const\"\n", "lib::v2::M::operator*": "\"lib::v2::M::operator*() const\"\n",
		"lib::*::operator new*": "\"lib::v2::M::operator new(unsigned long)\"\n\"lib::v2::M::operator new[](unsigned long)\"\n",
		"*operator[<>]":         "\"lib::v2::M::operator<(lib::v2::M const&) const\"\n\"lib::v2::M::operator>(lib::v2::M const&) const\"\n",
	} {
		if r := kprobe(t, &fake{}, "", "functions", "-x", cc, arg); r.status != 0 || r.out != want {
			t.Errorf("%s: %+v", arg, r)
		}
	}
}
