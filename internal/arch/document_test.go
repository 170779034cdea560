package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

var (
	testName = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w*`)
	fileName = regexp.MustCompile("`[a-z][a-z0-9_/]*\\.(?:go|txtar)`|\\b[a-z_]+\\.txtar\\b")
	testDecl = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)
)

// TestArchitectureNames: the tests and files that ARCHITECTURE.md names are
// there.
func TestArchitectureNames(t *testing.T) {
	root := fixture.Root()
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, files := map[string]bool{}, []string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files = append(files, filepath.ToSlash(path))
		if strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range testDecl.FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, name := range testName.FindAllString(string(page), -1) {
		named++
		if !tests[name] {
			t.Errorf("there is no %s", name)
		}
	}
	if named == 0 {
		t.Error("no test is named")
	}
	for _, name := range fileName.FindAllString(string(page), -1) {
		name = strings.Trim(name, "`")
		found := false
		for _, f := range files {
			found = found || strings.HasSuffix(f, "/"+name)
		}
		if !found {
			t.Errorf("there is no file %s", name)
		}
	}
}
