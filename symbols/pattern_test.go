package symbols

import (
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestGlobNames: for each address Glob has the best of the names that match, in the order of the addresses.
func TestGlobNames(t *testing.T) {
	f, err := OpenFile(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*", "**", "*str*", "__*", "FDE_*", "nothing at all", ""} {
		best := map[Vaddr]Symbol{}
		add := func(s Symbol) {
			if have, ok := best[s.Vaddr]; !ok || compareNames(&s, &have) < 0 {
				best[s.Vaddr] = s
			}
		}
		for _, table := range f.tables().list {
			for i := range table.symbols {
				s := &table.symbols[i]
				if name, _, _ := strings.Cut(table.name(s), "@"); f.isCode(table, s) && matchPattern(pattern, name) {
					add(f.symbol(table, s))
				}
			}
		}
		if pattern == "*" || pattern == "**" || pattern == "FDE_*" {
			for _, fn := range f.Funcs() {
				if fn.Symbol.Kind == KindFDE {
					add(fn.Symbol)
				}
			}
		}
		got := f.Glob(pattern)
		if len(got) != len(best) {
			t.Errorf("%q matches at %d addresses, want %d", pattern, len(got), len(best))
		}
		for _, s := range got {
			if s != best[s.Vaddr] {
				t.Errorf("%q at %v is %+v, want %+v", pattern, s.Vaddr, s, best[s.Vaddr])
			}
		}
		if !slices.IsSortedFunc(got, func(x, y Symbol) int {
			if x.Vaddr < y.Vaddr {
				return -1
			}
			return 1
		}) {
			t.Errorf("%q: not in order of address", pattern)
		}
	}
}
