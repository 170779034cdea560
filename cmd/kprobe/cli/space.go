package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// procMemory reads a process that nobody traces.
type procMemory struct{ f *os.File }

// ReadMemory implements symbols.Memory.
func (m procMemory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	return m.f.ReadAt(b, int64(at))
}

// open gives the space of -p or -x. module is what the place names: a path
// there stands for -x.
func (w *where) open(files *symbols.Cache, module string) (*symbols.Space, error) {
	switch {
	case len(w.pids) == 1:
		var mem symbols.Memory
		// Without its memory only the choices of IFUNCs stay unknown.
		if f, err := os.Open(procfs.Image(w.pids[0]).Path("mem")); err == nil {
			mem = procMemory{f}
		}
		space, err := files.OpenProcess(w.pids[0], mem)
		if err != nil {
			return nil, fail(ofProcess(w.pids[0], err))
		}
		if len(space.Modules()) == 0 {
			why := "has no memory: it has ended, or is a thread of the kernel"
			if len(space.Mappings()) > 0 {
				why = "runs no file of 64-bit x86 code that can be read"
			}
			return nil, fail(fmt.Errorf("process %d %s", w.pids[0], why))
		}
		return space, nil
	case w.exec != "":
		return openFile(files, w.exec)
	case strings.Contains(module, "/"):
		return openFile(files, module)
	}
	if path := library(module); path != "" {
		return openFile(files, path)
	}
	return nil, misuse("where to look? give -p PID, or -x FILE, a program or a library")
}

func openFile(files *symbols.Cache, path string) (*symbols.Space, error) {
	space, err := files.OpenFileSpace(path)
	return space, fail(err)
}

// libraryFolders is where distributions keep 64-bit libraries: Debian and
// Ubuntu, Fedora and its kin, Arch and Alpine.
func libraryFolders() []string {
	return []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib", "/lib", "/usr/local/lib"}
}

// library finds the file of a short name such as libc or libc.so.6, "" where
// there is none or more than one version.
func library(module string) string {
	if module == "" {
		return ""
	}
	for _, dir := range libraryFolders() {
		pattern := module
		if !strings.Contains(module, ".so") {
			pattern = module + ".so.*"
		}
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil && oneFile(found) {
			return found[0]
		}
	}
	return ""
}

// oneFile reports whether paths lead to one file: libx.so.0 is a link to
// libx.so.0.8.6.
func oneFile(paths []string) bool {
	for _, path := range paths {
		a, errA := os.Stat(paths[0])
		b, errB := os.Stat(path)
		if errA != nil || errB != nil || !os.SameFile(a, b) {
			return false
		}
	}
	return len(paths) > 0
}

// place parses a place as a definition would, blanks included.
func place(text string) (symbols.Place, error) {
	line := "p " + text
	if strings.ContainsAny(text, " \t") && text[0] != '"' {
		line = `p "` + text + `"`
	}
	d, err := fetch.Parse(line)
	if err != nil {
		return symbols.Place{}, err
	}
	return d.Place, nil
}
