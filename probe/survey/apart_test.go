package survey

import (
	"slices"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// A switch that leads into another part of the function, and with its first entry, is no way out, with symbols or
// without, and where it leads is known. A table of functions is, with the function itself in it, too.
func TestExitsApart(t *testing.T) {
	flags := []string{"-O2", "-fno-pie", "-no-pie", "-fcf-protection=none"}
	named, err := symbols.OpenFile(fixture.Build(t, "survey_apart.c", flags...))
	if err != nil {
		t.Fatal(err)
	}
	stripped, err := symbols.OpenFile(fixture.Build(t, "survey_apart.c", append(flags, "-s")...))
	if err != nil {
		t.Fatal(err)
	}
	if len(named.Lookup("apart.cold")) == 0 {
		t.Fatal("the compiler didn't put the first case elsewhere")
	}
	cold := uint64(named.Lookup("apart.cold")[0].Vaddr)
	for name, want := range map[string]int{"apart": 0, "chosen": 1} {
		at := named.Lookup(name)[0].Vaddr
		for _, file := range []*symbols.File{named, stripped} {
			fn, _ := file.FuncAt(at)
			_, sweep, err := Decode(file, &fn, symbols.Addr(fn.Start))
			if err != nil {
				t.Fatal(err)
			}
			exits := sweep.Exits()
			ends := slices.DeleteFunc(slices.Clone(exits), func(x insn.Exit) bool { return !x.Indirect })
			if len(ends) != want || want != 0 && ends[0].Sure {
				t.Errorf("%s as %s: %+v, want %d", name, fn.Symbol.Name, exits, want)
			}
			into := slices.ContainsFunc(exits, func(x insn.Exit) bool { return x.Switch && x.To == cold })
			if into != (name == "apart") {
				t.Errorf("%s as %s: %+v; that it leads to the other part: %v", name, fn.Symbol.Name, exits, into)
			}
		}
	}
}
