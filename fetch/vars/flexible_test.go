package vars

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestFlexibleArray has the elements of an array without a length, and says so of
// the whole.
func TestFlexibleArray(t *testing.T) {
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "flex.c"), filepath.Join(dir, "flex")
	const text = "struct packet { int n; long data[]; };\n__attribute__((noinline)) long take(struct packet *p) { return p->data[1] + p->n; }\nint main(void) { static struct packet p; return (int)take(&p); }\n"
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(fixture.NeedCC(t), "-g", "-O1", "-o", prog, src).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := scopeOf(t, prog, symbols.Place{Symbol: "take"})
	if v, err := s.Variable("p->data[2]"); err != nil || v.Off != 24 || v.Type.String() != "s64" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := s.Variable("p->data"); err == nil || !strings.Contains(err.Error(), "fetch single elements, p->data[N]") {
		t.Errorf("the whole: %v", err)
	}
}
