package vars

import (
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// What a Go function gets in several registers is fetched by its members, and
// each of them under the name that is given.
func TestPartsOfParameters(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.Build(t, "dwarf_vars.go"))
	if err != nil {
		t.Fatal(err)
	}
	for fn, want := range map[string][]string{
		"main.text":  {"s", "list.array", "list.len", "list.cap", "r"},
		"main.whole": {"p.X", "p.Y", "r", "any._type", "any.data"},
	} {
		sites, err := space.Resolve(symbols.Place{Symbol: fn})
		if err != nil {
			t.Fatal(err)
		}
		s := At(space, sites[0])
		list, err := s.Variables(fetch.WhichParams)
		if err != nil {
			t.Fatalf("%s: %v", fn, err)
		}
		var names []string
		for _, v := range list {
			names = append(names, v.Name)
			one, err := s.Variable(v.Name)
			if err != nil || one.Where() != v.Where() || one.Type.Base != v.Type.Base || one.Type.Size != v.Type.Size {
				t.Errorf("%s: %s is at %s, and by its name at %s: %v", fn, v.Name, v.Where(), one.Where(), err)
			}
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: %q, want %q", fn, names, want)
		}
		described, err := s.Describe()
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range described[:min(len(want), len(described))] {
			if d.Name != want[i] || d.At == "" || d.Type == "" || !d.Param {
				t.Errorf("%s: described as %+v, want %s", fn, d, want[i])
			}
		}
	}
}
