// Package arch holds the tests of the house: which room may import which, and
// where dangerous things may live.
package arch

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// floors lists the rooms from the top of the house down. A package may import
// only rooms that stand below its own.
var floors = []string{
	"kprobe/internal/gendocs",
	"kprobe/cmd/kprobe",
	"kprobe/output",
	"kprobe/probe",
	"kprobe/probe/recorder",
	"kprobe/probe/threads",
	"kprobe/probe/mailbox",
	"kprobe/probe/order",
	"kprobe/probe/loader",
	"kprobe/probe/planner",
	"kprobe/probe/exits",
	"kprobe/probe/assess",
	"kprobe/probe/flight",
	"kprobe/probe/inside",
	"kprobe/probe/starts",
	"kprobe/probe/results",
	"kprobe/probe/area",
	"kprobe/probe/fallbacks",
	"kprobe/probe/semaphore",
	"kprobe/probe/memory",
	"kprobe/probe/tracee",
	"kprobe/probe/signature",
	"kprobe/probe/gocode",
	"kprobe/probe/debugreg",
	"kprobe/probe/survey",
	"kprobe/probe/detour",
	"kprobe/probe/plan",
	"kprobe/probe/book",
	"kprobe/probe/ring",
	"kprobe/probe/asm",
	"kprobe/fetch",
	"kprobe/probe/insn",
	"kprobe/symbols",
}

// pure names the rooms that touch no process: no system calls in them.
var pure = []string{
	"kprobe/fetch", "kprobe/probe/insn", "kprobe/probe/asm", "kprobe/probe/plan",
	"kprobe/probe/detour", "kprobe/probe/signature", "kprobe/probe/gocode", "kprobe/probe/survey", "kprobe/probe/debugreg",
	"kprobe/probe/book", "kprobe/probe/flight", "kprobe/probe/order", "kprobe/probe/exits",
	"kprobe/probe/planner",
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = fixture.Root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var ps []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

// floor returns the index of the room that holds the package, or -1: a
// package below symbols/ stands on the floor of symbols.
func floor(pkg string) int {
	best, at := -1, -1
	for i, f := range floors {
		if (pkg == f || strings.HasPrefix(pkg, f+"/")) && len(f) > best {
			best, at = len(f), i
		}
	}
	return at
}

func TestImportsPointDown(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		from := floor(p.ImportPath)
		if from < 0 {
			continue
		}
		for _, imp := range p.Imports {
			to := floor(imp)
			if to < 0 {
				continue
			}
			seen++
			if to < from {
				t.Errorf("%s imports %s, which stands above it", p.ImportPath, imp)
			}
		}
	}
	if seen < 5 {
		t.Fatalf("only %d imports between rooms were seen: is the list of floors stale?", seen)
	}
}

// TestOutputPrintsData wants no engine below what prints, and no mechanism of the
// engine in the command line. Recordings hold records as they lie in rings.
func TestOutputPrintsData(t *testing.T) {
	const results, records = "kprobe/probe/results", "kprobe/probe/ring"
	seen := false
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			inProbe := imp == "kprobe/probe" || strings.HasPrefix(imp, "kprobe/probe/")
			switch p.ImportPath {
			case "kprobe/output", "kprobe/output/recording", "kprobe/output/calls", "kprobe/output/report", "kprobe/output/graph", "kprobe/output/html", "kprobe/output/metrics":
				if p.ImportPath == "kprobe/output/recording" && imp == records {
					continue
				}
				if seen = seen || imp == results; inProbe && imp != results {
					t.Errorf("%s imports %s: it prints what is in %s", p.ImportPath, imp, results)
				}
			case "kprobe/cmd/kprobe/cli":
				if inProbe && imp != "kprobe/probe" && imp != results {
					t.Errorf("cli imports %s: what it needs of it belongs to package probe", imp)
				}
			}
		}
	}
	if !seen {
		t.Errorf("output doesn't import %s: is the name stale?", results)
	}
}

func TestGuestsStayInTheirRooms(t *testing.T) {
	rooms := map[string][]string{
		"github.com/spf13/cobra":             {"kprobe/cmd/kprobe", "kprobe/internal/gendocs"},
		"github.com/olekukonko/tablewriter":  {"kprobe/output"},
		"golang.org/x/arch/x86/x86asm":       {"kprobe/probe/insn"},
		"github.com/ianlancetaylor/demangle": {"kprobe/symbols"},
		"github.com/google/pprof":            {"kprobe/output/report"},
		"github.com/prometheus":              {"kprobe/output/metrics"},
		"google.golang.org/protobuf":         {"kprobe/output/metrics"},
	}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for guest, allowed := range rooms {
				if imp == guest || strings.HasPrefix(imp, guest+"/") {
					ok := false
					for _, a := range allowed {
						ok = ok || p.ImportPath == a || strings.HasPrefix(p.ImportPath, a+"/")
					}
					if !ok {
						t.Errorf("%s imports %s, which may live in %v only", p.ImportPath, imp, allowed)
					}
				}
			}
		}
	}
}

func TestPureRoomsTouchNoProcess(t *testing.T) {
	for _, p := range packages(t) {
		for _, room := range pure {
			if p.ImportPath != room {
				continue
			}
			for _, imp := range p.Imports {
				// syscall alone would do no harm: fetch takes errno's names from it.
				if imp == "golang.org/x/sys/unix" || imp == "os/exec" || imp == "syscall" && room != "kprobe/fetch" {
					t.Errorf("%s imports %s: a pure room makes no system calls", p.ImportPath, imp)
				}
			}
		}
	}
}

// TestSources holds rules that need each file's text: unsafe only where the
// name says so, and no file that grew too large to be one concept.
func TestSources(t *testing.T) {
	root := fixture.Root()
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		rel, _ := filepath.Rel(root, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() > 25<<10 {
			t.Errorf("%s has %d bytes: more than 25 KB is more than one concept", rel, info.Size())
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range f.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			if name == "unsafe" && !strings.HasSuffix(path, "_unsafe.go") && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s imports unsafe: only files named …_unsafe.go may", rel)
			}
			if name == "golang.org/x/arch/x86/x86asm" && rel != filepath.Join("probe", "insn", "text.go") && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s imports x86asm: only probe/insn/text.go may", rel)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("only %d Go files were seen", files)
	}
}
