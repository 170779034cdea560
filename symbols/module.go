package symbols

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"

	"kprobe/internal/procfs"
)

// Module is a file as one process has it loaded. It is immutable.
type Module struct {
	File *File
	Name string // last element of Path; "[vdso]" for the kernel's own
	Path string // as in /proc/PID/maps, without " (deleted)"
	Bias uint64 // Addr = Vaddr + Bias
	Maps []Mapping
	Main bool // the program itself
	// Translated says that the program itself is Valgrind, and this is code that it reads, to run a translation of it.
	Translated bool

	dev, ino uint64 // as in maps
	deleted  bool
}

// Addr returns where the process has what the file has at v.
func (m *Module) Addr(v Vaddr) Addr { return Addr(uint64(v) + m.Bias) }

// Vaddr returns where the file has what the process has at a.
func (m *Module) Vaddr(a Addr) Vaddr { return Vaddr(uint64(a) - m.Bias) }

// Contains reports whether one of the module's mappings holds the address.
func (m *Module) Contains(a Addr) bool {
	for i := range m.Maps {
		if m.Maps[i].Contains(a) {
			return true
		}
	}
	return false
}

// whole reports whether the module is loaded from its first segment on, and
// where its file wants to be if it is not position-independent.
func (m *Module) whole() bool {
	if m.File.Type == elf.ET_EXEC {
		return m.Bias == 0
	}
	seg := m.File.im.segmentOf(elf.PT_LOAD)
	return m.Name == "[vdso]" || seg != nil && m.Contains(m.Addr(seg.vaddr))
}

// translates reports whether the module is a tool of Valgrind's: a static program, TOOL-amd64-linux. All else in its
// process belongs to the program that it examines.
func (m *Module) translates() bool {
	_, dynamic := m.File.Segment(elf.PT_INTERP)
	return m.Main && strings.HasSuffix(m.Name, "-amd64-linux") && !dynamic
}

// matchRank says how well a module answers to a name: 0 not at all, larger is
// better.
func (m *Module) matchRank(name string) int {
	switch {
	case name == m.Path, name == m.File.Path:
		return 6
	case name == m.Name:
		return 5
	case name == m.File.Soname && name != "":
		return 4
	case strings.HasPrefix(name, "/"):
		return 0
	case m.Name == "[vdso]" && (name == "vdso" || name == "linux-vdso.so.1"):
		return 3
	case isShort(name, m.Name), m.File.Soname != "" && isShort(name, m.File.Soname):
		return 3
	case strings.ContainsRune(name, '/') && strings.HasSuffix(m.Path, strings.TrimPrefix(name, ".")):
		return 2 // ./prog, build/prog
	case name == "libc" && strings.HasPrefix(m.Name, "ld-musl-"):
		return 1 // musl's loader is its C library, too
	}
	return 0
}

// isShort reports whether a library's file is said by a short name: libc.so.6 by
// libc, libglib-2.0.so.0 by libglib-2.0 and libglib.
func isShort(short, file string) bool {
	stem, _ := stemOf(file)
	return short == stem || short == shortName(file)
}

// stemOf is what stands before a library's .so, or all of another name.
func stemOf(file string) (stem string, library bool) {
	i := strings.Index(file, ".so")
	if i <= 0 || len(file) > i+3 && file[i+3] != '.' && file[i+3] != '-' {
		return file, false
	}
	return file[:i], true
}

// shortName is a library's name as people say it: libc.so.6, libc-2.36.so and
// libc.musl-x86_64.so.1 are libc.
func shortName(name string) string {
	name, library := stemOf(name)
	if !library {
		return name
	}
	name, _, _ = strings.Cut(name, ".musl")
	for i := 1; i < len(name); i++ { // -2.36
		digits := strings.TrimLeft(name[i:], "0123456789")
		if name[i-1] == '-' && len(digits) < len(name)-i && strings.HasPrefix(digits, ".") {
			return name[:i-1]
		}
	}
	return name
}

// FindModule returns the modules that answer to a name, in the order in which
// the process mapped them: a path, a file name (libc.so.6, libc-2.36.so), a
// soname, or its short form (libc; libglib-2.0 or libglib). Where several kinds
// match, only the modules of the best kind are given. A path that is a link to a
// mapped file matches too.
func (s *Space) FindModule(name string) []*Module {
	var out []*Module
	best := 1
	for _, m := range s.Modules() {
		r := m.matchRank(name)
		if r > best {
			best, out = r, nil
		}
		if r == best {
			out = append(out, m)
		}
	}
	if out == nil && s.calledAs(name) {
		for _, m := range s.Modules() {
			if m.Main {
				return []*Module{m}
			}
		}
	}
	if out != nil || !strings.ContainsRune(name, '/') {
		return out
	}
	for _, path := range [...]string{s.root() + name, name} {
		dev, ino, ok := fileID(path)
		if !ok {
			continue
		}
		for _, m := range s.Modules() {
			mdev, mino, ok := fileID(s.root() + m.Path)
			if ok && mdev == dev && mino == ino {
				out = append(out, m)
			}
		}
		if out != nil {
			return out
		}
	}
	return nil
}

// FindModules is FindModule for names that may be shell patterns: where no module
// answers to the name itself, it gives those whose file name or soname matches, or
// whose path does if the pattern has a slash.
func (s *Space) FindModules(name string) []*Module {
	list := s.FindModule(name)
	if list != nil || !wildModule(name) {
		return list
	}
	for _, m := range s.Modules() {
		if strings.ContainsRune(name, '/') {
			if matchPattern(name, m.Path) {
				list = append(list, m)
			}
		} else if matchPattern(name, m.Name) || m.File.Soname != "" && matchPattern(name, m.File.Soname) {
			list = append(list, m)
		}
	}
	return list
}

// wildModule reports whether a module's name is written as a shell pattern. The
// brackets of [vdso] make none.
func wildModule(name string) bool { return strings.ContainsAny(name, "*?") }

// calledAs reports whether the process was started under a name: the last part
// of its argv[0], which differs from its file's name where that was reached
// through a link. A process that has written over its arguments (as servers do
// for their titles) is known by its command name.
func (s *Space) calledAs(name string) bool {
	if s.pid == 0 || name == "" {
		return false
	}
	args, err := os.ReadFile(procfs.Image(s.pid).Path("cmdline"))
	if err == nil {
		first, _, _ := strings.Cut(string(args), "\x00")
		word, _, _ := strings.Cut(first, " ")
		if filepath.Base(word) == filepath.Base(name) && !strings.ContainsRune(name, '/') || first == name {
			return true
		}
	}
	comm, err := procfs.Process(s.pid).Comm()
	return err == nil && comm == name
}

// bias finds where a mapping of the file puts it in memory: the bias that
// makes a PT_LOAD segment of the same kind lie at the mapping.
func (f *File) bias(m Mapping) (uint64, bool) {
	const page = 4096
	for _, s := range f.im.segments {
		if s.typ != elf.PT_LOAD || (s.flags&elf.PF_X != 0) != m.Exec {
			continue
		}
		first := s.off &^ (page - 1)
		end := (uint64(s.off) + s.filesz + page - 1) &^ (page - 1)
		if m.Off < first || uint64(m.Off) >= end {
			continue
		}
		base := uint64(s.vaddr) &^ (page - 1)
		return uint64(m.Start) - (base + uint64(m.Off-first)), true
	}
	return 0, false
}

// elfCandidate reports whether a mapped file may be a module; devices and the
// like are not opened.
func elfCandidate(m Mapping) bool {
	return m.IsFile() && !strings.HasPrefix(m.Path, "/dev/") && !strings.HasPrefix(m.Path, "/memfd:kprobe") &&
		!strings.HasPrefix(m.Path, "/SYSV") && filepath.IsAbs(m.Path)
}
