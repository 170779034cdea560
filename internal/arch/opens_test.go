package arch

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// openers are the calls that open a file by a name.
var openers = []string{
	"os.Open", "os.OpenFile", "os.ReadFile", "os.Create", "os.DirFS", "os.OpenRoot", "elf.Open",
	"unix.Open", "unix.Openat", "unix.Openat2", "unix.Creat", "syscall.Open", "syscall.Openat", "ioutil.ReadFile",
}

// kernels matches an argument that is a file which the kernel makes up about a
// process or a machine: no program chooses what is there. What /proc has of
// links into a program's files isn't such.
var (
	kernels = regexp.MustCompile(`^(fmt\.Sprintf\()?"/(proc|sys)/|^procfs\.(Process|Thread|Image)\(|^p\.path\(|^filepath\.Join\((p\.Root|d\.Proc\.Root|"/proc"), `)
	links   = regexp.MustCompile(`map_files|\broot\b|\bexe\b|\bcwd\b|/fd\b|\bfd/`)
)

// ownFiles are the other calls that may be: those of files that kprobe or its
// user names.
var ownFiles = map[string][]string{
	"cmd/kprobe/cli/counts.go":      {"os.Create(p.name)"},                                                                                          // --html FILE
	"cmd/kprobe/cli/definitions.go": {"os.Open(name)"},                                                                                              // -F FILE
	"cmd/kprobe/cli/hits.go":        {"os.Open(name)"},                                                                                              // FILE of report
	"cmd/kprobe/cli/report.go":      {"os.Create(o.perfetto)", "os.Create(name)"},                                                                   // --perfetto FILE …
	"output/rotate.go":              {"os.Create(r.path)"},                                                                                          // -o FILE with --rotate
	"output/recording/recorder.go":  {"os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)", "os.OpenFile(name, os.O_RDWR|os.O_CREATE, mode)"}, // -o FILE
	"cmd/kprobe/cli/outfile.go":     {"os.Create(o.outputFile)"},                                                                                    // -o FILE
	"cmd/kprobe/cli/snapshot.go":    {"os.Create(o.output)"},                                                                                        // -o FILE
	"cmd/kprobe/facts/machine.go":   {`os.OpenFile(filepath.Join(dir, "uprobe_events")`},                                                            // of tracefs
	"probe/recorder/blackbox.go":    {"os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK"},                                                              // FILE of snapshot
	"probe/memory/keep.go":          {"os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)"},                                                  // --keep FILE
	"probe/memory/file.go":          {`"fd/"+strconv.Itoa(int(fd))), os.O_RDWR`},                                                                    // made by kprobe the moment before
	"internal/procfs/procfs.go":     {"unix.Open(path, ", "os.Open(dir)", `os.ReadFile(t.Path("children"))`},                                        // of /proc
	"internal/procfs/exec.go":       {`os.ReadFile(Image(pid).Path("auxv"))`},                                                                       // of /proc
	"internal/procfs/frozen.go":     {`os.ReadFile(Process(pid).Path("cgroup"))`, "os.ReadFile(filepath.Join(dir, f.file))"},                        // of /proc and a mounted cgroup hierarchy
	"probe/tracee/start.go":         {"os.OpenFile(os.DevNull, "},                                                                                   // standard input of a command
	"symbols/debuginfod/store.go":   {"os.OpenFile(path, os.O_CREATE"},                                                                              // the cache folder
	"symbols/indexcache.go":         {"os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, "},                                      // the cache folder, which others than its user don't write to
	"internal/untrusted/open.go":    {"unix.Open(", "unix.Openat2("},
}

// TestOneOpens: whatever a program's file leads to is opened by package
// untrusted, which knows what may wait there. Tests, generators and bench, which
// runs programs of its own, open what they have made.
func TestOneOpens(t *testing.T) {
	root := fixture.Root()
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if slices.Contains([]string{".git", "testdata", "cmd/kprobe/bench", "cmd/kprobe/kept", "internal/fixture", "internal/gendocs", "probe/insn/internal"}, rel) || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			text := func(n ast.Node) string {
				var b strings.Builder
				if err := printer.Fprint(&b, set, n); err != nil {
					t.Fatal(err)
				}
				return b.String()
			}
			if !slices.Contains(openers, text(call.Fun)) || len(call.Args) == 0 {
				return true
			}
			seen++
			what, name := text(call), text(call.Args[0])
			if kernels.MatchString(name) && !links.MatchString(name) {
				return true
			}
			if !slices.ContainsFunc(ownFiles[rel], func(own string) bool { return strings.Contains(what, own) }) {
				t.Errorf("%v: %s: a file that a program may have named is opened by package untrusted only", set.Position(call.Pos()), what)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("only %d calls were seen: is the list of openers stale?", seen)
	}
}
