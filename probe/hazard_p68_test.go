package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// TestHazardP68 probes text that a static program has mapped itself: it is refused if the program is named like a tool of
// Valgrind's, which would run a translation of it, and taken otherwise. The program's own text is taken in both.
func TestHazardP68(t *testing.T) {
	prog := fixture.Build(t, "shared_text.c", "-O1", "-static")
	text, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(t.TempDir(), "libpart.so")
	run(t, "cc", "-O1", "-fPIC", "-shared", "-Wl,-z,noseparate-code", "-o", lib, filepath.Join("..", "testdata", "library_part.c"))
	off := inspectFile(t, lib, "part_work")[0].Lines[0].Addr
	for _, name := range []string{"memcheck-amd64-linux", "memcheck"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, text, 0o755); err != nil {
			t.Fatal(err)
		}
		sub := startSubject(t, path, lib, fmt.Sprint(uint64(off)), "memfd")
		sub.line()
		sub.expect("mapped")
		m := mappedText(t, sub.pid(), "part.so")
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := collecting(t, s)
		l.run()
		if err := s.Arm(t.Context(), parseDefs(t, "p:own main")); err != nil {
			t.Errorf("%s: its own text: %v", name, err)
		}
		err = s.Arm(t.Context(), parseDefs(t, fmt.Sprintf("p:work %#x", uint64(m.Start+off-symbols.Addr(m.Off)))))
		var refused *RefusedError
		switch translated := errors.As(err, &refused) && refused.Rule == survey.TranslatedRule; {
		case name == "memcheck" && err != nil, name != "memcheck" && !translated:
			t.Errorf("%s: %v", name, err)
		}
		sub.line()
		sub.expect("145")
		l.finish(sub.pid())
	}
}
