package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"kprobe/internal/fixture"
)

// TestRecipes: the command lines of kprobe in the recipes are taken by its parsers of flags
// and of definitions, and the YAML files parse.
func TestRecipes(t *testing.T) {
	dir := filepath.Join(fixture.Root(), ".ci", "recipes")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var lines [][]string
		switch filepath.Ext(f.Name()) {
		case ".sh":
			lines = shellLines(string(text))
		case ".yaml":
			var doc any
			if err := yaml.Unmarshal(text, &doc); err != nil {
				t.Fatalf("%s: %v", f.Name(), err)
			}
			lines = containers(doc)
		default:
			continue
		}
		for _, args := range lines {
			seen++
			takes(t, f.Name(), args)
		}
	}
	if seen < 6 {
		t.Errorf("only %d command lines of kprobe were seen", seen)
	}
}

// takes has the flags and the definitions of a command line read, and nothing done.
func takes(t *testing.T, file string, args []string) {
	t.Helper()
	c, rest, err := New(&Deps{}).Find(args)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err != nil || c.Name() == "kprobe" {
		t.Errorf("%s: %q: %v", file, args, err)
		return
	}
	if c.Name() == "report" {
		return // its words are files
	}
	if defs, err := (&sources{args: c.Flags().Args()}).parse(strings.NewReader("")); err != nil || len(defs) == 0 {
		t.Errorf("%s: %q: %d definitions, %v", file, args, len(defs), err)
	}
}

// containers gives the arguments of a document's containers whose command is kprobe.
func containers(doc any) (out [][]string) {
	switch doc := doc.(type) {
	case map[any]any:
		if command, ok := doc["command"].([]any); ok && len(command) == 1 && command[0] == "/kprobe" {
			var args []string
			for _, a := range doc["args"].([]any) {
				args = append(args, a.(string))
			}
			out = append(out, args)
		}
		for _, v := range doc {
			out = append(out, containers(v)...)
		}
	case []any:
		for _, v := range doc {
			out = append(out, containers(v)...)
		}
	}
	return out
}

// shellLines gives the arguments of kprobe on the lines of a script; a variable is 1.
func shellLines(text string) (out [][]string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := shellWords(strings.TrimSpace(line))
		if i := slices.IndexFunc(words, func(w string) bool { return w == "kprobe" || w == "/kprobe" }); i >= 0 {
			words = words[i+1:]
			if end := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, ">") }); end >= 0 {
				words = words[:end]
			}
			out = append(out, words)
		}
	}
	return out
}

func shellWords(line string) (words []string) {
	var word strings.Builder
	quote, in := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, in = r, true
		case quote == 0 && r == ' ':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if in {
		words = append(words, word.String())
	}
	for i, w := range words {
		if w == "$1" {
			words[i] = "1"
		}
	}
	return words
}
