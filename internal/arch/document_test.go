package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

var (
	testName   = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w*`)
	fileName   = regexp.MustCompile("`[a-z][a-z0-9_/]*\\.(?:go|txtar)`|\\b[a-z_]+\\.txtar\\b")
	hazardTest = regexp.MustCompile(`^TestHazard([RWDXPH]\d*)`)
	testDecl   = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)
)

// TestDocumentsName: the tests and files that the pages for developers name are
// there.
func TestDocumentsName(t *testing.T) {
	root := fixture.Root()
	tests, files := testsAndFiles(t, root)
	for _, page := range [...]string{"ARCHITECTURE.md", "probe/HAZARDS.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		names := testName.FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", page)
		}
		for _, name := range names {
			if !tests[name] {
				t.Errorf("%s names %s, which is not there", page, name)
			}
		}
		for _, name := range fileName.FindAllString(string(text), -1) {
			name = strings.Trim(name, "`")
			if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/"+name) }) {
				t.Errorf("%s names the file %s, which is not there", page, name)
			}
		}
	}
}

// TestHazardsAreListed: a test with a hazard's code in its name is in the line of
// that hazard.
func TestHazardsAreListed(t *testing.T) {
	root := fixture.Root()
	page, err := os.ReadFile(filepath.Join(root, "probe", "HAZARDS.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, _ := testsAndFiles(t, root)
	seen := 0
	for name := range tests {
		m := hazardTest.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		seen++
		listed := false
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(line, "|")
			listed = listed || len(cells) == 6 && slices.Contains(testName.FindAllString(cells[4], -1), name) && strings.Contains(cells[1], m[1])
		}
		if !listed {
			t.Errorf("probe/HAZARDS.md has no line of %s that names %s", m[1], name)
		}
	}
	if seen == 0 {
		t.Error("there is no test of a hazard")
	}
}

// testsAndFiles gives the names of all tests, and the paths of all files.
func testsAndFiles(t *testing.T, root string) (tests map[string]bool, files []string) {
	t.Helper()
	tests = map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
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
	return tests, files
}
