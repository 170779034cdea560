package symbols

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// TestAmbiguousGlobal: of a global function and statics of the same name, each is
// offered by its source file, by a directory too where files have one name.
func TestAmbiguousGlobal(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-g", "-O1", "-o", "prog"}
	for name, text := range map[string]string{
		"src/twin.c":  "int twin(int n) { return n + 1; }\nint deep(int); int main(int c, char **v) { return twin(c) + deep(c); }\n",
		"deep/twin.c": "static __attribute__((noinline)) int twin(int n) { return n + 2; }\n",
		"deep/use.c":  "#include \"twin.c\"\nint deep(int n) { return twin(n); }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if name != "deep/twin.c" {
			args = append(args, name)
		}
	}
	cmd := exec.Command(fixture.NeedTool(t, "cc"), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s, err := OpenFileSpace(filepath.Join(dir, "prog"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Resolve(Place{Symbol: "twin"})
	var e *AmbiguousError
	if !errors.As(err, &e) || len(e.Candidates) != 2 {
		t.Fatalf("twin: %v", err)
	}
	texts := map[string]bool{}
	for i, c := range e.Candidates {
		texts[c.Text] = true
		sites, err := s.Resolve(placeOf(c.Text))
		sites = slices.DeleteFunc(sites, func(at Site) bool { return at.NamedAs().Inlined != "" })
		if err != nil || len(sites) != 1 || sites[0].Addr != s.Modules()[0].Addr(e.list[i].Vaddr) {
			t.Errorf("%s: %v, %v", c.Text, sites, err)
		}
	}
	if !texts["twin@use.c"] || !texts["twin@src/twin.c"] && !texts["twin@twin.c"] {
		t.Errorf("%v", texts)
	}
}
