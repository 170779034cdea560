package symbols

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"kprobe/internal/procfs"
)

// Space is the set of modules of one process, or one file alone. It is safe for concurrent
// use. Refresh replaces what others see in one step.
type Space struct {
	pid   int // 0: a file alone
	mem   Memory
	cache *Cache
	mu    sync.Mutex // held by Refresh
	now   atomic.Pointer[view]
	perf  perfMap // names of code that has no file
	jit   perfMap // names from a jitdump
	told  []Told  // names that were given to the Space, by address
}

// view is what was mapped at one time. It is immutable but for its memo.
type view struct {
	maps    []Mapping // by address
	modules []*Module // in the order of dynamic linking
	strays  []*Module // parts of files that are mapped a second time; no name means them
	ranges  []span    // by address
	former  []*Module // modules that were mapped before, the last first
	names   memo
	short   memo
}

// span is a run of addresses of one module.
type span struct {
	start, end Addr
	module     *Module
}

// OpenProcess reads what a process has mapped. mem is its memory; if it is nil, there is no
// vdso, and IFUNC symbols are unbound. The process need not be stopped; one that is in the midst
// of an execve(2) is awaited, for 2 seconds at most. Errors are ErrGone and ErrPermission. A mapped
// file that can't be read is no error; its mapping has no module.
func OpenProcess(pid int, mem Memory) (*Space, error) { return new(Cache).OpenProcess(pid, mem) }

// OpenProcess is the function OpenProcess with the cache.
func (c *Cache) OpenProcess(pid int, mem Memory) (*Space, error) {
	procfs.AwaitExec(pid)
	s := &Space{pid: pid, mem: mem, cache: c}
	s.jit.dump = &jitDump{}
	if err := s.Refresh(); err != nil {
		return nil, err
	}
	return s, nil
}

// OpenFileSpace makes a Space of a file that no process has loaded. Its bias is 0, so an Addr
// equals the file's Vaddr.
func OpenFileSpace(path string) (*Space, error) { return new(Cache).OpenFileSpace(path) }

// OpenFileSpace is the function OpenFileSpace with the cache.
func (c *Cache) OpenFileSpace(path string) (*Space, error) {
	f, err := c.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return NewFileSpace(f), nil
}

// NewFileSpace makes a Space of one file, as OpenFileSpace does.
func NewFileSpace(f *File) *Space {
	m := &Module{File: f, Name: f.Name, Path: f.Path, Main: true}
	for _, p := range f.im.segments {
		if p.typ == elf.PT_LOAD && p.memsz > 0 {
			m.Maps = append(m.Maps, Mapping{
				Start: Addr(p.vaddr), End: Addr(p.vaddr) + Addr(p.memsz), Off: p.off, Path: f.Path, Inode: 1,
				Read: p.flags&elf.PF_R != 0, Write: p.flags&elf.PF_W != 0, Exec: p.flags&elf.PF_X != 0,
			})
		}
	}
	s := &Space{cache: &Cache{}}
	s.now.Store(newView(m.Maps, []*Module{m}, nil))
	return s
}

// PID is the process, or 0 for a file alone.
func (s *Space) PID() int { return s.pid }

func (s *Space) root() string {
	if s.pid == 0 {
		return ""
	}
	return procfs.Image(s.pid).Path("root")
}

// Refresh reads the mappings again, after the process has executed another program, or loaded
// or unloaded a library. Modules that did not change keep their *Module. On error nothing
// changes.
func (s *Space) Refresh() error {
	if s.pid == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps, err := ReadMaps(s.pid)
	if err != nil {
		return err
	}
	var old []*Module
	if v := s.now.Load(); v != nil {
		if slices.Equal(v.maps, maps) {
			return nil
		}
		old = slices.Concat(v.modules, v.strays)
	}
	modules, strays := s.assemble(maps, old)
	v := newView(maps, modules, strays)
	v.former = former(s.now.Load(), modules)
	s.now.Store(v)
	return nil
}

// maxFormer limits how many modules are remembered that are no longer mapped.
const maxFormer = 64

// former returns the modules that are no longer mapped, the last first.
func former(was *view, now []*Module) []*Module {
	if was == nil {
		return nil
	}
	var out []*Module
	for _, m := range slices.Concat(was.modules, was.former) {
		if !slices.Contains(now, m) && !slices.Contains(out, m) && len(out) < maxFormer {
			out = append(out, m)
		}
	}
	return out
}

// loadKey distinguishes modules; a file may be loaded twice (dlmopen).
type loadKey struct {
	dev, ino uint64
	path     string
	bias     uint64
}

// assemble finds the modules of the mappings. There is one for each executable mapping of an
// ELF file that matches one of the file's segments. The other mappings of that file with the
// same bias belong to it.
//
// Some programs map parts of their own code a second time (V8 does so with its builtins, next
// to compiled code). Such a stray has names, but no name means it.
func (s *Space) assemble(maps []Mapping, old []*Module) (modules, strays []*Module) {
	type fileID struct {
		dev, ino uint64
		path     string
	}
	id := func(m Mapping) fileID {
		return fileID{uint64(m.Major)<<32 | uint64(m.Minor), m.Inode, m.Path}
	}
	files := map[fileID]*File{}
	byLoad := map[loadKey]*Module{}
	var out []*Module
	exe := exePath(s.pid)
	for _, m := range maps {
		if m.Path == "[vdso]" {
			if mod := s.vdso(m, old); mod != nil {
				out = append(out, mod)
			}
			continue
		}
		if !m.Exec || !elfCandidate(m) {
			continue
		}
		k := id(m)
		f, tried := files[k]
		if !tried {
			f = known(old, k.dev, k.ino, m)
			if f == nil {
				f, _ = s.openMapped(m)
			}
			files[k] = f
		}
		if f == nil {
			continue
		}
		bias, ok := f.bias(m)
		if !ok {
			continue
		}
		key := loadKey{k.dev, k.ino, k.path, bias}
		if byLoad[key] == nil {
			mod := &Module{File: f, Name: filepath.Base(m.Path), Path: m.Path, Bias: bias,
				Main: m.Path == exe, dev: k.dev, ino: k.ino, deleted: m.Deleted}
			byLoad[key] = mod
			out = append(out, mod)
		}
	}
	for _, m := range maps {
		if f := files[id(m)]; f != nil {
			if bias, ok := f.bias(m); ok {
				if mod := byLoad[loadKey{uint64(m.Major)<<32 | uint64(m.Minor), m.Inode, m.Path, bias}]; mod != nil {
					mod.Maps = append(mod.Maps, m)
				}
			}
		}
	}
	if slices.ContainsFunc(out, (*Module).translates) {
		for _, m := range out {
			if !m.Main && !m.Translated {
				m.Translated = true
			}
		}
	}
	for i, m := range out {
		for _, o := range old {
			if o.File == m.File && o.Bias == m.Bias && slices.Equal(o.Maps, m.Maps) {
				out[i] = o
			}
		}
	}
	for _, m := range out {
		if m.whole() {
			modules = append(modules, m)
		} else {
			strays = append(strays, m)
		}
	}
	modules = linkOrder(modules)
	s.followLinkMap(modules)
	return modules, strays
}

// known returns the File of an old module, if a mapping is still of the same file.
func known(old []*Module, dev, ino uint64, m Mapping) *File {
	for _, o := range old {
		if o.dev == dev && o.ino == ino && o.Path == m.Path && o.deleted == m.Deleted {
			return o.File
		}
	}
	return nil
}

// linkOrder sorts modules in the order of name lookup: the program, then libraries, then the
// dynamic linker and the vdso. Libraries are mapped downwards, so the first library has the
// highest address.
func linkOrder(list []*Module) []*Module {
	rank := func(m *Module) int {
		switch {
		case m.Main:
			return 0
		case m.Name == "[vdso]":
			return 3
		case len(m.Name) > 3 && (m.Name[:3] == "ld-" || m.Name[:3] == "ld."):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(list, func(x, y *Module) int {
		if d := rank(x) - rank(y); d != 0 {
			return d
		}
		switch {
		case x.Bias > y.Bias:
			return -1
		case x.Bias < y.Bias:
			return 1
		}
		return 0
	})
	return list
}

// vdso makes the module of the kernel's own library from the process's memory.
func (s *Space) vdso(m Mapping, old []*Module) *Module {
	for _, o := range old {
		if o.Name == "[vdso]" && o.Maps[0] == m {
			return o
		}
	}
	const maxVDSO = 1 << 20
	if s.mem == nil || m.End-m.Start > maxVDSO {
		return nil
	}
	b := make([]byte, m.End-m.Start)
	if n, err := s.mem.ReadMemory(b, m.Start); err != nil || n != len(b) {
		return nil
	}
	f, err := NewFile("[vdso]", b)
	if err != nil {
		return nil
	}
	return &Module{File: f, Name: "[vdso]", Path: "[vdso]", Bias: uint64(m.Start), Maps: []Mapping{m}}
}

func newView(maps []Mapping, modules, strays []*Module) *view {
	v := &view{maps: maps, modules: modules, strays: strays}
	for _, mod := range slices.Concat(modules, strays) {
		for _, m := range mod.Maps {
			v.ranges = append(v.ranges, span{m.Start, m.End, mod})
		}
	}
	slices.SortFunc(v.ranges, func(x, y span) int {
		switch {
		case x.start < y.start:
			return -1
		case x.start > y.start:
			return 1
		}
		return 0
	})
	return v
}

// Modules returns the modules in the order in which names are looked up: the program, its
// libraries, the dynamic linker, the vdso. The slice is shared and must not be changed.
func (s *Space) Modules() []*Module { return s.now.Load().modules }

// Mappings returns what was mapped when the Space was last refreshed, by
// address. The slice is shared and must not be changed.
func (s *Space) Mappings() []Mapping { return s.now.Load().maps }

// ModuleAt returns the module that has the address mapped, or nil.
func (s *Space) ModuleAt(a Addr) *Module { return s.now.Load().moduleAt(a) }

func (v *view) moduleAt(a Addr) *Module {
	lo, hi := 0, len(v.ranges)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); v.ranges[mid].start <= a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || a >= v.ranges[lo-1].end {
		return nil
	}
	return v.ranges[lo-1].module
}

// MappingAt returns the mapping that holds the address.
func (s *Space) MappingAt(a Addr) (Mapping, bool) {
	maps := s.now.Load().maps
	i := sort.Search(len(maps), func(i int) bool { return maps[i].Start > a }) - 1
	if i < 0 || !maps[i].Contains(a) {
		return Mapping{}, false
	}
	return maps[i], true
}

// String names the process or file.
func (s *Space) String() string {
	if s.pid == 0 {
		return s.Modules()[0].Name
	}
	return fmt.Sprintf("process %d", s.pid)
}
