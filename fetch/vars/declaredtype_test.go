package vars

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestDeclaredStructure: a structure that a file only declares is that which another file
// defines, also where a typedef has its name. If files define different ones, which of them
// it is isn't known.
func TestDeclaredStructure(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	uses := write("uses.c", "typedef struct conn conn; struct twice; struct nowhere; typedef union either either;\n"+
		"__attribute__((noinline)) void use(conn *c, struct twice *t, struct nowhere *n, either *e) { __asm__ volatile(\"\" :: \"r\"(c), \"r\"(t), \"r\"(n), \"r\"(e)); }\n")
	one := write("one.c", "struct conn { int a, fd; }; struct twice { int a; }; union either { int n; float f; };\n"+
		"void use(struct conn *, struct twice *, void *, union either *);\n"+
		"int main(void) { struct conn c = {1, 2}; struct twice t = {3}; union either e = {4}; use(&c, &t, 0, &e); return 0; }\n")
	two := write("two.c", "struct twice { long b; int a; } two = {1, 2};\nstruct conn { int a, fd; } three;\n")
	for _, flags := range [][]string{{"-g", "-O1"}, {"-g", "-O1", "-gdwarf-4", "-fdebug-types-section"}} {
		space, err := symbols.OpenFileSpace(fixture.BuildFile(t, uses, append(flags, one, two)...))
		if err != nil {
			t.Fatal(err)
		}
		sites, err := space.Resolve(symbols.Place{Symbol: "use"})
		if err != nil {
			t.Fatal(err)
		}
		scope := At(space, sites[0])
		for name, want := range map[string]string{"c->fd": "", "e->n": "", "t->a": "different units define different structures", "n->a": "no unit defines it"} {
			_, err := scope.Variable(name)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%v: %s: %v", flags, name, err)
			}
		}
	}
}
