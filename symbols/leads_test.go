package symbols

import (
	"math/rand/v2"
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

// TestLeadFinder: what finds starts quickly finds the same as a search.
func TestLeadFinder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, most := range []uint64{1, 3, 300, 3000, 1 << 24} {
		var ranges []fde
		at := Vaddr(0x1235)
		for range 300 {
			ranges = append(ranges, fde{at, at + 1})
			at += 1 + Vaddr(rnd.Uint64N(most))
		}
		l := newLeadFinder(ranges, false)
		if far := most == 1<<24; (l.blocks == nil) != far {
			t.Errorf("ranges up to %d bytes apart: %d blocks", most, len(l.blocks))
		}
		look := func(v Vaddr) {
			t.Helper()
			want, has := startAt(ranges, v)
			if got, ok := l.startsAt(v); ok != has || ok && got != want {
				t.Errorf("ranges up to %d bytes apart: at %v starts %d, %v, want %d, %v", most, v, got, ok, want, has)
			}
		}
		for _, r := range ranges {
			look(r.start - 1)
			look(r.start)
			look(r.start + 1)
		}
		for _, v := range []Vaddr{0, 0x1234, at, at + 1<<20, ^Vaddr(0)} {
			look(v)
		}
	}
}
