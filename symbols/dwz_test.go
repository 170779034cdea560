package symbols

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// TestPlacesInSharedFile: functions whose names dwz moved to a file that several
// programs share are found, with all their bodies and instances.
func TestPlacesInSharedFile(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(fixture.Build(t, "dwarf_vars.cc", "-g", "-O2", "-Wl,--build-id"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "prog", "twin"} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, fixture.NeedTool(t, "dwz"), "-m", filepath.Join(dir, "common.dwz"), filepath.Join(dir, "prog"), filepath.Join(dir, "twin"))
	sites := func(prog, name string) (out []Vaddr) {
		t.Helper()
		s, err := OpenFileSpace(filepath.Join(dir, prog))
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.resolveInlined(Place{Symbol: name}, s.Modules(), true)
		if err != nil {
			t.Fatal(err)
		}
		for _, site := range list {
			out = append(out, site.Vaddr)
		}
		return out
	}
	found := 0
	for _, name := range []string{"area", "shapes::Box::area", "scale", "swap_in", "caller", "size", "push_back", "c_str", "no_such_name"} {
		want := sites("plain", name)
		if got := sites("prog", name); !slices.Equal(got, want) {
			t.Errorf("%s is at %v with a shared file, at %v without", name, got, want)
		}
		found += len(want)
	}
	if found < 4 {
		t.Errorf("only %d places", found)
	}
}
