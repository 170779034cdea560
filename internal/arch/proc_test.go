package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// ofProcesses matches what a file of /proc/PID is named by, other than by package
// procfs.
var ofProcesses = regexp.MustCompile(`^/proc/(%|self/(stat|status|task|maps)|cpuinfo)|^/proc/?$`)

// TestOneProc: what /proc tells of processes is read by package procfs.
func TestOneProc(t *testing.T) {
	root := fixture.Root()
	allowed := map[string]int{ // how many
		"internal/procfs/procfs.go":   1,
		"internal/procfs/cpuinfo.go":  1,
		"cmd/kprobe/facts/facts.go":   1, // where tests have another
		"probe/engine/optarm.go":      1, // of another root
		"probe/tracee/access/look.go": 2,
		"probe/tracee/attach.go":      1,
		"probe/tracee/seccomp.go":     1,
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		seen := 0
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && ofProcesses.MatchString(text) {
					seen++
				}
			}
			return true
		})
		if seen != allowed[rel] {
			t.Errorf("%s names /proc in %d places, expected are %d: package procfs reads what is there", rel, seen, allowed[rel])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
