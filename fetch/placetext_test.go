package fetch

import (
	"testing"

	"kprobe/symbols"
)

func TestPlaceText(t *testing.T) {
	for _, tt := range []struct {
		place symbols.Place
		want  string
	}{
		{symbols.Place{Symbol: "main"}, "main"},
		{symbols.Place{Symbol: "p"}, `"p"`}, // else the command
		{symbols.Place{Symbol: "r12"}, `"r12"`},
		{symbols.Place{Symbol: "twin", File: "a.c"}, "twin@a.c"},
		{symbols.Place{Symbol: "open@GLIBC_2.2.5"}, "open@GLIBC_2.2.5"},
		{symbols.Place{Symbol: "f", File: "core.c1f1-cgu.0"}, ""}, // no source file
		{symbols.Place{Module: "libc.so.6", Symbol: "open"}, "libc.so.6:open"},
		{symbols.Place{Symbol: "ns::f(int, char const*)"}, "ns::f(int, char const*)"},
		{symbols.Place{Symbol: "unsigned int ns::f<int>(int)"}, `"unsigned int ns::f<int>(int)"`},
		{symbols.Place{Module: "n", Symbol: "S::operator int() const"}, `"n:S::operator int() const"`},
		{symbols.Place{Symbol: "S::operator<(S const&) const"}, `"S::operator<(S const&) const"`},
		{symbols.Place{Symbol: "main [clone .cold]"}, `"main [clone .cold]"`},
		{symbols.Place{Symbol: "net/http.(*conn).serve"}, "net/http.(*conn).serve"},
		{symbols.Place{Symbol: "tagged[abi:cxx11](int)"}, "tagged[abi:cxx11](int)"},
		{symbols.Place{Symbol: "main", Offset: 4}, "main+4"},
		{symbols.Place{Kind: symbols.PlaceVaddr, Module: "n", Value: 0x40}, "n:0x40"},
		{symbols.Place{Symbol: "0x4010"}, ""}, // an address, no name
		{symbols.Place{Symbol: "main+4"}, ""},
		{symbols.Place{Symbol: "main%return"}, ""},
		{symbols.Place{Symbol: "two\nlines"}, ""},
		{symbols.Place{Symbol: `a"b`}, ""},
		{symbols.Place{}, ""},
	} {
		text, ok := PlaceText(tt.place)
		if text != tt.want || ok != (tt.want != "") {
			t.Errorf("%+v: %q, %t, want %q", tt.place, text, ok, tt.want)
			continue
		}
		if d, err := Parse("p:ev " + text + " a=$arg1"); ok && (err != nil || d.Place != tt.place || len(d.Args) != 1) {
			t.Errorf("%+v as %s: %v", tt.place, text, err)
		}
	}
}
