package vars

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// What a Go function gets in several registers is fetched by its members, unless it
// is a container, and
// each of them under the name that is given.
func TestPartsOfParameters(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.Build(t, "dwarf_vars.go"))
	if err != nil {
		t.Fatal(err)
	}
	for fn, want := range map[string][]string{
		"main.text":  {"s", "list", "r"},
		"main.whole": {"p.X", "p.Y", "r", "any"},
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

const goPieces = `package main

import "os"

type inner struct{ A, B string }

type conn struct {
	N    int
	Name string
	In   inner
	ok   bool
}

//go:noinline
func work(d conn) int { return len(d.Name) + d.N + len(d.In.B) }

func main() { os.Exit(work(conn{1, "hello", inner{"a", "b"}, true}) & 1) }
`

// What lies in several registers is one value where it is asked for by name, and
// its members are values in lists.
func TestMembersInSeveralRegisters(t *testing.T) {
	src := filepath.Join(t.TempDir(), "pieces.go")
	if err := os.WriteFile(src, []byte(goPieces), 0o644); err != nil {
		t.Fatal(err)
	}
	space, err := symbols.OpenFileSpace(fixture.BuildFile(t, src))
	if err != nil {
		t.Fatal(err)
	}
	sites, err := space.Resolve(symbols.Place{Symbol: "main.work"})
	if err != nil {
		t.Fatal(err)
	}
	s := At(space, sites[0])
	for _, name := range []string{"d.Name", "d.In.A", "d.In.B"} {
		if v, err := s.Variable(name); err != nil || !v.Type.IsText() {
			t.Errorf("%s: %+v, %v, want text", name, v, err)
		}
	}
	if v, err := s.Variable("d.N"); err != nil || v.Type.Size != 8 {
		t.Errorf("d.N: %+v, %v", v, err)
	}
	for _, name := range []string{"d", "d.In"} {
		if v, err := s.Variable(name); err != nil || v.Type.Layout == nil || len(v.Parts) < 4 {
			t.Errorf("%s: %+v, %v, want all of it", name, v, err)
		}
	}
	split := place{kind: inPieces, pieces: []piece{{0, 4, place{kind: isValue}}, {4, 4, place{kind: isValue}}}}
	if _, err := split.value(8); !errors.Is(err, errPieces) {
		t.Errorf("a number in two registers: %v, want %v", err, errPieces)
	}
	list, err := s.Variables(fetch.WhichParams)
	var names []string
	for _, v := range list {
		names = append(names, v.Name)
	}
	if want := []string{"d.N", "d.Name", "d.In.A", "d.In.B", "d.ok"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v, want %q", names, err, want)
	}
}
