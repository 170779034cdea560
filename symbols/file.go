package symbols

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"kprobe/internal/untrusted"
	"kprobe/symbols/unwind"
)

// File is an ELF file: an executable, a shared library or the vdso. It is
// immutable and safe for concurrent use. Symbols, unwinding ranges and
// relocations are read when they are first asked for.
//
// It keeps the file open, so that it can still be read after it was deleted;
// the descriptor is closed when the File is no longer reachable.
type File struct {
	Path    string   // as it was opened or as its process names it
	Name    string   // last element of Path
	Soname  string   // DT_SONAME, or ""
	BuildID string   // in hexadecimal, or ""
	Type    elf.Type // ET_EXEC or ET_DYN

	im    *image
	dyn   map[elf.DynTag]uint64
	code  []codeRange
	found finder // where separate debug files are looked for

	symbols        lazy[symbolTables]
	goTable        lazy[goFuncs]
	ranges         lazy[[]fde]
	relocs         lazy[[]relocation]
	relatives      lazy[[]relative] // by slot
	exported       lazy[[]exportedData]
	stubs          lazy[[]Symbol]
	stubsByAddress lazy[[]Symbol]
	index          lazy[funcIndex]
	byName         lazy[nameIndex]
	lookups        counter
	readable       lazy[[]atomic.Pointer[string]]
	short          lazy[[]atomic.Pointer[string]]
	debugIn        lazy[debugFile]
	debug          lazy[debugState]
	ahead          ahead
	// debugRead says that debug has its value.
	debugRead atomic.Bool
	sources   lazy[[][]byte] // what names source files; nil: not told without debug
	// otherBuild is a debug file that was found and not used.
	otherBuild   atomic.Pointer[OtherBuildError]
	cfi          lazy[*unwind.Table]
	ehRows       lazy[*unwind.Table]
	entries      lazy[[]entry] // of ranges
	entriesAsked atomic.Int32  // how often was asked for a function's entry
	midstsAsked  atomic.Int32  // how often for one that is no start of a range
	goRows       lazy[*goLines]
	ledTo        lazy[[]Leads] // of ranges
	calls        lazy[[]call]
	sequences    lazy[[]Sequence]
	usdt         lazy[[]USDT]
	usdtAt       lazy[map[Vaddr][]*USDT]
	isGo         lazy[bool]
	texts        textPieces
}

// codeRange is a run of executable bytes that the file holds.
type codeRange struct{ start, end Vaddr }

// OpenFile opens an ELF file of x86-64. Its errors are *FormatError, and those
// of opening and reading.
func OpenFile(path string) (*File, error) {
	r, info, err := openNamed("", path)
	if err != nil {
		return nil, err
	}
	f, err := newFile(path, r, info.Size(), finder{})
	if err != nil {
		r.Close()
		return nil, err
	}
	return f, nil
}

// openNamed opens a file that a program names, as untrusted.OpenIn does. What is
// no regular file, or can't be one of symbols by its size, is a *FormatError.
func openNamed(root, path string) (*os.File, os.FileInfo, error) {
	r, info, err := untrusted.OpenIn(root, path)
	switch {
	case errors.Is(err, untrusted.ErrIrregular):
		return nil, nil, &FormatError{Path: path, What: "the file", Why: "is not a regular file"}
	case errors.Is(err, untrusted.ErrTooLarge):
		return nil, nil, &FormatError{Path: path, What: "the file", Why: "is too large, or consists of holes"}
	case err != nil:
		return nil, nil, err
	}
	return r, info, nil
}

// NewFile makes a File of an ELF file's contents, such as the vdso's as read
// from a process. b is not copied and must not change.
func NewFile(path string, b []byte) (*File, error) {
	return newFile(path, memoryFile{bytes.NewReader(b), b}, int64(len(b)), finder{})
}

func newFile(path string, r io.ReaderAt, size int64, found finder) (f *File, err error) {
	defer rescue(path, &err)
	im, err := parseImage(path, r, size)
	if err != nil {
		return nil, err
	}
	f = &File{Path: path, Name: filepath.Base(path), Type: im.typ, im: im, found: found}
	f.dyn = im.dynamic()
	f.Soname = im.soname(f.dyn)
	f.BuildID = im.buildID()
	f.code = im.codeRanges()
	return f, nil
}

// memoryFile is a file whose contents are in memory.
type memoryFile struct {
	*bytes.Reader
	all []byte
}

// rescue turns a panic while a file is read into a *FormatError. The parsers
// check what they index; this is the boundary that keeps a mistake of theirs
// from taking a tracer down.
func rescue(path string, err *error) {
	if p := recover(); p != nil {
		*err = &FormatError{Path: path, What: "the file", Why: fmt.Sprintf("could not be read: %v", p)}
	}
}

// codeRanges are the executable sections that have contents; where a file has
// no sections, its executable segments.
func (im *image) codeRanges() []codeRange {
	var out []codeRange
	const want = elf.SHF_ALLOC | elf.SHF_EXECINSTR
	for i := range im.sections {
		if s := &im.sections[i]; s.flags&want == want && s.typ != elf.SHT_NOBITS && s.size > 0 && uint64(s.addr)+s.size > uint64(s.addr) {
			out = append(out, codeRange{s.addr, s.addr + Vaddr(s.size)})
		}
	}
	if out != nil {
		return out
	}
	for _, s := range im.segments {
		if s.typ == elf.PT_LOAD && s.flags&elf.PF_X != 0 && s.filesz > 0 {
			out = append(out, codeRange{s.vaddr, s.end()})
		}
	}
	return out
}

// codeAt is the run of code that holds the address.
func (f *File) codeAt(v Vaddr) (codeRange, bool) {
	for _, c := range f.code {
		if c.start <= v && v < c.end {
			return c, true
		}
	}
	return codeRange{}, false
}

// Executable reports whether the address lies in code that the file holds.
func (f *File) Executable(v Vaddr) bool {
	_, ok := f.codeAt(v)
	if !ok {
		return false
	}
	s := f.im.load(v)
	return s != nil && s.flags&elf.PF_X != 0
}

// Text returns n bytes of code at the address as the file has them: without relocations, and
// without what anybody has patched in a process. It returns fewer if the segment ends before
// that, but at least one. Their capacity is their length. The error is ErrNotExecutable for an
// address outside executable segments.
func (f *File) Text(v Vaddr, n int) ([]byte, error) {
	b, err := f.AppendText(nil, v, n)
	return slices.Clip(b), err
}

// AppendText is Text, and appends the code to b.
func (f *File) AppendText(b []byte, v Vaddr, n int) ([]byte, error) {
	s := f.im.load(v)
	if s == nil || s.flags&elf.PF_X == 0 || n <= 0 {
		return nil, fmt.Errorf("read code at %v of %s: %w", v, f.Name, ErrNotExecutable)
	}
	off, size, err := f.im.place(v, uint64(n), "code")
	if err != nil {
		return nil, err
	}
	return f.texts.append(b, f.im, off, size)
}

// Constant fills b with what the file loads at the address, if a program can't change it: in
// segments that are not writable. The error is ErrNotConstant if not all of it is such memory.
func (f *File) Constant(b []byte, v Vaddr) error {
	s := f.im.load(v)
	if s == nil || s.flags&elf.PF_W != 0 || uint64(len(b)) > s.filesz-uint64(v-s.vaddr) {
		return fmt.Errorf("read %d bytes at %v of %s: %w", len(b), v, f.Name, ErrNotConstant)
	}
	_, err := f.im.r.ReadAt(b, int64(s.off)+int64(v-s.vaddr))
	return err
}

// OffToVaddr returns the address at which the byte of the file is loaded. ok is false if it
// isn't loaded. If several segments load it, the executable one counts.
func (f *File) OffToVaddr(o Off) (v Vaddr, ok bool) {
	for _, s := range f.im.segments {
		if s.typ == elf.PT_LOAD && o >= s.off && uint64(o-s.off) < s.filesz && (!ok || s.flags&elf.PF_X != 0) {
			v, ok = s.vaddr+Vaddr(o-s.off), true
		}
	}
	return v, ok
}

// VaddrToOff returns the place in the file of the byte loaded at the address; ok
// is false when the file has none (.bss, no segment).
func (f *File) VaddrToOff(v Vaddr) (o Off, ok bool) {
	s := f.im.load(v)
	if s == nil {
		return 0, false
	}
	return s.off + Off(v-s.vaddr), true
}

// Segment is a program header as far as it is asked for.
type Segment struct {
	Vaddr   Vaddr
	MemSize uint64 // in bytes
	Align   uint64
}

// Segment finds the first program header of a type.
func (f *File) Segment(t elf.ProgType) (Segment, bool) {
	s := f.im.segmentOf(t)
	if s == nil {
		return Segment{}, false
	}
	return Segment{s.vaddr, s.memsz, s.align}, true
}

// Section is the name of the section that holds the address, or "".
func (f *File) Section(v Vaddr) string {
	if s := f.im.sectionAt(v); s != nil {
		return s.name
	}
	return ""
}

// SectionData reads a section by its name; ok is false when the file has none
// of that name or it can't be read.
func (f *File) SectionData(name string) (b []byte, v Vaddr, ok bool) {
	s := f.im.section(name)
	if s == nil {
		return nil, 0, false
	}
	b, err := f.im.data(s)
	return b, s.addr, err == nil && b != nil
}

// IsGo reports whether Go's linker made the file.
func (f *File) IsGo() bool { return f.isGo.get(f.findGo) }

func (f *File) findGo() bool {
	for _, s := range [...]string{".go.buildinfo", ".note.go.buildid", ".gopclntab"} {
		if f.im.section(s) != nil {
			return true
		}
	}
	return false
}

// GoTLS returns where a thread of a Go program keeps its goroutine (runtime·tlsg), as an offset
// from fs. Go's linker puts it at the end of the thread's own memory; that of libraries
// follows. ok is false if it isn't known.
func (f *File) GoTLS() (off int64, ok bool) {
	_, dynamic := f.Segment(elf.PT_INTERP)
	memory, _ := f.Segment(elf.PT_TLS)
	return -8, (f.Type == elf.ET_EXEC || dynamic) && memory.MemSize <= 8
}

func (f *File) fdes() []fde {
	return f.ranges.get(func() (out []fde) {
		var err error
		defer rescue(f.Path, &err)
		return f.im.fdes()
	})
}

// lazy holds a value that is made when it is first asked for.
type lazy[T any] struct {
	once  sync.Once
	value T
}

func (l *lazy[T]) get(make func() T) T {
	l.once.Do(func() { l.value = make() })
	return l.value
}
