package symbols

import (
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestNamesWith says that what it names is what Funcs knows, twins included.
func TestNamesWith(t *testing.T) {
	f, err := OpenFile(fixture.Build(t, "sym_main.c", "-O1", otherSource()))
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"sym_", "twin", "main", "nothing_has_this_name", ""} {
		got := map[string]int{}
		for _, s := range f.NamesWith(prefix, 1<<20) {
			got[s.Name]++
			if !strings.HasPrefix(s.Name, prefix) || len(f.Lookup(s.Name)) == 0 {
				t.Errorf("%q: %s", prefix, s.Name)
			}
		}
		for _, fn := range f.Funcs() {
			if name := fn.Symbol.Name; strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, "FDE_") && got[name] == 0 {
				t.Errorf("%q lacks %s", prefix, name)
			}
		}
		if prefix == "twin" && got["twin"] != 2 || prefix == "sym_" && len(got) < 3 {
			t.Errorf("%q: %v", prefix, got)
		}
	}
	if n := len(f.NamesWith("", 3)); n != 3 {
		t.Errorf("%d names of at most 3", n)
	}
	if names := f.NamesWith("main", 10); !slices.ContainsFunc(names, func(s Symbol) bool { return s.Name == "main" && s.Vaddr != 0 }) {
		t.Errorf("%v", names)
	}
}
