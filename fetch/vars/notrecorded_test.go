package vars

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestNotRecorded: what is there and can't be recorded is said to be so, of
// locals too, and asked for by name why.
func TestNotRecorded(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "wide.c")
	text := "typedef double four __attribute__((vector_size(32)));\n" +
		"__attribute__((noinline)) double wide(four v, int n) { return v[0] + v[3] + n; }\n" +
		"__attribute__((noinline)) int work(int n, int m) {\n" +
		"extern int declared __attribute__((weak)); int grid[n][m], row[n];\n" +
		"grid[1][1] = row[1] = n;\n" +
		"return row[1] + grid[1][1] + (n > 100 ? declared : 0);\n}\n" +
		"int main(int c, char **v) { four x = {1, 2, 3, c}; return work(c + 2, c + 3) + (int)wide(x, c); }\n"
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	prog := fixture.BuildFile(t, src, "-g", "-O0", "-mavx")
	optimized := fixture.BuildFile(t, src, "-g", "-O1", "-mavx")
	scope := func(prog string, at symbols.Place) *Scope {
		t.Helper()
		space, err := symbols.OpenFileSpace(prog)
		if err != nil {
			t.Fatal(err)
		}
		sites, err := space.Resolve(at)
		if err != nil || len(sites) != 1 {
			t.Fatalf("%v: %v, %v", at, sites, err)
		}
		return At(space, sites[0])
	}
	locals := scope(prog, symbols.Place{Kind: symbols.PlaceLine, File: "wide.c", Line: 6})
	gone := func(list []fetch.Variable, err error) (names string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			if cmp.Equal(v, fetch.GoneVariable(v.Name, fetch.NotRecorded)) {
				names += v.Name + " "
			}
		}
		return names
	}
	if got := gone(locals.Variables(fetch.WhichLocals)); got != "grid " {
		t.Errorf("of the locals %q can't be recorded", got)
	}
	if _, err := locals.Variable("grid[1][1]"); !errors.Is(err, fetch.ErrNoValue) || strings.Contains(err.Error(), "optimized out") {
		t.Errorf("an element of rows whose size isn't known: %v", err)
	}
	if _, err := locals.Variable("declared"); !errors.Is(err, fetch.ErrNoValue) || strings.Contains(err.Error(), "optimized out") {
		t.Errorf("a variable that is only declared: %v", err)
	}
	wide := scope(optimized, symbols.Place{Symbol: "wide"})
	if got := gone(wide.Parameters()); got != "v " {
		t.Errorf("of the parameters %q can't be recorded", got)
	}
	for name, want := range map[string]bool{"v": false, "v[0]": true, "v[1]": true, "v[2]": false, "v[3]": false} {
		_, err := wide.Variable(name)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "first 16 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
