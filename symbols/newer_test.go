package symbols

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestNewerSource: a source file that was written to after the program was linked
// is told, whichever way the program is looked at.
func TestNewerSource(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "n.c"), filepath.Join(dir, "n")
	if err := os.WriteFile(source, []byte("int main(void)\n{\n\treturn 0;\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, fixture.NeedTool(t, "gcc"), "-g", "-o", program, source)
	linked := time.Now().Add(-time.Hour)
	if err := os.Chtimes(program, linked, linked); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		write func() error
		want  string
	}{
		{"older", func() error { return os.Chtimes(source, linked, linked.Add(-time.Minute)) }, ""},
		{"of the same time", func() error { return os.Chtimes(source, linked, linked) }, ""},
		{"newer", func() error { return os.Chtimes(source, linked, linked.Add(time.Second)) }, source},
		{"no file", func() error { _ = os.Remove(source); return os.Mkdir(source, 0o700) }, ""},
		{"gone", func() error { return os.Remove(source) }, ""},
	} {
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
		s, err := OpenFileSpace(program)
		if err != nil {
			t.Fatal(err)
		}
		sites, err := s.Resolve(Place{Kind: PlaceLine, File: "n.c", Line: 3})
		if err != nil || len(sites) != 1 {
			t.Fatalf("%v, %v", sites, err)
		}
		if got := s.NewerSource(sites[0]); got != c.want {
			t.Errorf("%s: %q is newer, want %q", c.name, got, c.want)
		}
	}
}
