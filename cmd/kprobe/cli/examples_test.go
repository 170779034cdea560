package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// words splits a shell's command line: blanks, single and double quotes.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quote, open := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ':
			if open {
				out = append(out, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if open {
		out = append(out, word.String())
	}
	return out
}

// TestExamplesAreRight runs every trace and profile that the README and the
// help show, over an engine that only looks at definitions and flags.
func TestExamplesAreRight(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(fixture.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	root := New(&Deps{})
	text := string(readme) + "\n" + root.Example
	for _, c := range root.Commands() {
		text += "\n" + c.Example
	}
	s := newStore(t)
	t.Chdir(t.TempDir())                   // some write files
	s.ok("add", "p:web/handle libc:close") // what the README adds from a program of its own
	seen := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.Replace(line, "go run ./cmd/kprobe", "kprobe", 1))
		line, _, _ = strings.Cut(line, " | ")
		line, _, _ = strings.Cut(line, " # ") // a comment
		args := words(line)
		if len(args) < 2 || args[0] != "kprobe" || args[1] != "trace" && args[1] != "profile" {
			continue
		}
		seen++
		for i := range args {
			if args[i] == "probes.txt" {
				args[i] = "-"
			}
		}
		f := &fake{}
		if r := keeping(t, s.path, f, "p:one libc:openat\n", args[1:]...); r.status != 0 || len(f.defs) == 0 {
			t.Errorf("%s: %+v", line, r)
		}
	}
	if seen < 15 {
		t.Errorf("only %d examples were seen", seen)
	}
}
