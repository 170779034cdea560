package symbols

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestPieceOf tells parts of functions that are jumped to from functions with such
// names.
func TestPieceOf(t *testing.T) {
	f, err := OpenFile(fixture.Build(t, "sym_pieces.s", "-nostdlib", "-static", "-no-pie"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"whole.cold": "whole", "whole.cold.12": "whole", "whole.part.0.cold": "whole.part.0",
		"whole.warm": "whole", "whole.__part.3": "whole",
		"_ZN2ns1fEi.isra.0.cold":                  "ns::f(int) [clone .isra.0]",
		"_ZN5crate4work17h0123456789abcdefE.cold": "crate::work",
		"outlined.cold.1":                         "", // it is called
		"whole.part.0":                            "",
		"copied.constprop.0.isra.0":               "",
		"scold":                                   "",
		"whole.colder":                            "",
		"whole":                                   "",
	} {
		syms := f.Lookup(name)
		if len(syms) != 1 {
			t.Fatalf("%s: %v", name, syms)
		}
		if got, ok := f.PieceOf(syms[0].Vaddr); got != want || ok != (want != "") {
			t.Errorf("%s is a part of %q, %v; want %q", name, got, ok, want)
		}
	}
}

// TestLeads: what leads to a function is found.
func TestLeads(t *testing.T) {
	fixture.NeedTool(t, "g++")
	f, err := OpenFile(fixture.Build(t, "cold_calls.cc", "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Leads{
		"_ZN2ns6Server6handleEi":      LeadCall | LeadExported, // if it is
		"_ZN2ns6Server6handleEi.cold": LeadBranch,
		"_ZN2nsL7refusedEi":           LeadCall | LeadJump,
		"main":                        LeadTaken, // for __libc_start_main
	} {
		for _, s := range f.Lookup(name) {
			if got := f.Leads(s.Vaddr); got&want == 0 || name[len(name)-1] == 'd' && got != want {
				t.Errorf("%s: %b, want of %b", name, got, want)
			}
		}
	}
	if got := f.Leads(1); got != 0 {
		t.Errorf("no function: %b", got)
	}
}
