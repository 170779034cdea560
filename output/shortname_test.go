package output

import (
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestShortNames: text calls a function of C++ by its name; with -v, and in JSON,
// by its signature, which tells overloads apart.
func TestShortNames(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.Build(t, "sym_names.cc", "-O0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{space: space}
	for name, site := range map[string]*symbols.Site{"ns::f(char const*, unsigned long)": &s.work, "double ns::twice<double>(double)": &s.caller} {
		sites, err := space.Resolve(symbols.Place{Symbol: name})
		if err != nil || len(sites) != 1 {
			t.Fatalf("resolve %s: %d places, %v", name, len(sites), err)
		}
		*site = sites[0]
	}
	entry := s.hit(t, "p:ev f", fetch.Regs{}, nil)
	entry.Stack = []symbols.StackFrame{{Addr: s.work.Addr}, {Addr: s.caller.Addr + 9, Call: true}}
	ret := s.hit(t, "r:ev f", fetch.Regs{}, nil)
	ret.Func = "ns::f(char const*, unsigned long)"
	for _, tt := range []struct {
		f         Formatter
		entry     []string
		ret       []string
		signature bool
	}{
		{Formatter{}, []string{"(ns::f+0x0/0x", " => ns::f+0x0\n", " => ns::twice+0x9\n"}, []string{"(ns::twice+0x5/0x", " <- ns::f)"}, false},
		{Formatter{Signatures: true}, []string{"(ns::f(char const*, unsigned long)+0x0/0x", " => double ns::twice<double>(double)+0x9\n"},
			[]string{"(double ns::twice<double>(double)+0x5/0x", " <- ns::f(char const*, unsigned long))"}, true},
		{Formatter{Form: JSON}, []string{`"sym":"ns::f(char const*, unsigned long)"`}, []string{`"func":"ns::f(char const*, unsigned long)"`}, true},
	} {
		line, err := tt.f.Append(nil, entry)
		if err != nil {
			t.Fatal(err)
		}
		again, err := tt.f.Append(nil, ret)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.entry {
			if !strings.Contains(string(line), want) {
				t.Errorf("%q has no %q", line, want)
			}
		}
		for _, want := range tt.ret {
			if !strings.Contains(string(again), want) {
				t.Errorf("%q has no %q", again, want)
			}
		}
		if strings.Contains(string(line)+string(again), "char const") != tt.signature {
			t.Errorf("%q %q", line, again)
		}
	}
}
