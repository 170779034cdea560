package cli

import (
	"bufio"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"kprobe/internal/untrusted"
	"kprobe/symbols"
	"kprobe/symbols/glob"
)

// mapped gives a function that reports whether the target maps a file that a
// definition calls module. Every process must map it. A process that can't be
// read, or has ended, maps everything: attaching to it says what is wrong.
func (o *sessionOptions) mapped() func(module string) bool {
	if len(o.command) > 0 {
		return mappedBy(o.command[0])
	}
	var spaces []*symbols.Space
	for _, pid := range o.pids {
		if s, err := symbols.OpenProcess(pid, nil); err == nil && len(s.Modules()) > 0 {
			spaces = append(spaces, s)
		}
	}
	return func(module string) bool {
		for _, s := range spaces {
			if module != "" && len(s.FindModules(module)) == 0 {
				return false
			}
		}
		return true
	}
}

// Bounds on how many files a program's links are followed through, and on a
// script's first line.
const (
	maxImages    = 1000
	maxFirstLine = 4096
)

// images are the files that a program maps when it starts.
type images struct {
	paths []string
	seen  map[string]bool // by name as it is linked
}

// mappedBy gives the function of mapped for a command that does not run yet:
// the program, its loader and the libraries that they link to. What it opens
// later, with dlopen(3), isn't known.
func mappedBy(command string) func(module string) bool {
	im := &images{seen: map[string]bool{}}
	if path, err := exec.LookPath(command); err == nil {
		im.program(path, 0)
	}
	return im.holds
}

// program adds the file that exec maps for a path, which may be a script.
func (im *images) program(path string, depth int) {
	f, _, err := untrusted.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	first, err := bufio.NewReader(io.LimitReader(f, maxFirstLine)).ReadString('\n')
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if err != nil && len(first) < 2 || !strings.HasPrefix(first, "#!") || len(words) == 0 {
		im.file(path)
		return
	}
	// BINPRM_MAX_RECURSION of the kernel's exec is 5.
	if depth == 5 {
		return
	}
	if filepath.Base(words[0]) == "env" && len(words) > 1 {
		if found, err := exec.LookPath(words[1]); err == nil {
			words[0] = found
		}
	}
	im.program(words[0], depth+1)
}

// file adds an ELF file and what it links to.
func (im *images) file(path string) {
	if len(im.paths) >= maxImages {
		return
	}
	im.paths = append(im.paths, path)
	f, err := untrusted.OpenELF(path)
	if err != nil {
		return
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err == nil {
				im.link(strings.TrimRight(string(b), "\x00"), nil)
			}
		}
	}
	needed, err := f.DynString(elf.DT_NEEDED)
	if err != nil {
		return
	}
	for _, name := range needed {
		im.link(name, searchFolders(f.File, path))
	}
}

// link adds a file that is linked to by a name.
func (im *images) link(name string, folders []string) {
	if name == "" || im.seen[name] {
		return
	}
	im.seen[name] = true
	if strings.Contains(name, "/") {
		im.file(name)
		return
	}
	for _, dir := range folders {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			im.file(path)
			return
		}
	}
}

// searchFolders lists where the loader looks, in its order (ld.so(8)).
func searchFolders(f *elf.File, path string) []string {
	var out []string
	add := func(list string) {
		for dir := range strings.SplitSeq(list, ":") {
			dir = strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(dir)
			if dir != "" {
				out = append(out, dir)
			}
		}
	}
	each := func(tag elf.DynTag) {
		// A tag that is absent is no error; a damaged one has no folders.
		lists, _ := f.DynString(tag)
		for _, l := range lists {
			add(l)
		}
	}
	each(elf.DT_RPATH)
	add(os.Getenv("LD_LIBRARY_PATH"))
	each(elf.DT_RUNPATH)
	return append(out, libraryFolders()...)
}

// holds reports whether one of the files answers to the name.
func (im *images) holds(module string) bool {
	if module == "" {
		return true
	}
	st, err := os.Stat(module)
	byPath := strings.Contains(module, "/") && err == nil
	wild := symbols.Place{Module: module}.IsGlob()
	for _, path := range im.paths {
		base := filepath.Base(path)
		switch {
		case wild && (glob.Match(module, base, "!^") || glob.Match(module, path, "!^")):
			return true
		case byPath:
			if have, err := os.Stat(path); err == nil && os.SameFile(st, have) {
				return true
			}
		case strings.Contains(module, "/"):
			if path == module {
				return true
			}
		case base == module, strings.HasPrefix(base, module+".so"), im.seen[module]:
			return true
		}
	}
	return false
}

// loadable reports whether a file that a definition calls module is a library
// that a program may load while it runs (dlopen): a shared object that is no
// program.
func loadable(module string) bool {
	if !strings.Contains(module, "/") {
		if module = library(module); module == "" {
			return true // nothing is known of it
		}
	}
	f, err := untrusted.OpenELF(module)
	if err != nil {
		return false
	}
	defer f.Close()
	program := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	return f.Type == elf.ET_DYN && !program
}
