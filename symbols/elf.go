package symbols

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"weak"

	"kprobe/symbols/unwind"
)

// Bounds on what is read of a file. A hostile file may state any size; what it states must also be inside the
// file.
const (
	maxSections  = 1 << 16
	maxSegments  = 1 << 12
	maxSection   = 1 << 30 // bytes read of one section
	maxSymbols   = 1 << 24
	maxNoteBytes = 1 << 16
	maxSoname    = 4096
	readSize     = 64 << 10 // bytes read at once of what is not kept as it is
	sizeofEhdr   = 64
	sizeofPhdr   = 56
	sizeofShdr   = 64
	sizeofSym    = 24
	sizeofRela   = 24
)

// image is the skeleton of an ELF file: its headers. It is immutable but for
// what mu guards; reading
// from it is safe for concurrent use as far as r is.
type image struct {
	path     string
	r        io.ReaderAt
	size     int64
	typ      elf.Type
	entry    Vaddr
	segments []segment
	sections []section
	whole    []byte // the mapped file, once mapped was asked for
	mu       sync.Mutex
	unpacked []unpacked                   // under mu
	early    map[string][]byte            // under mu: sections that were unpacked before the others
	grown    int64                        // under mu: bytes that its sections were unpacked to
	eh       weak.Pointer[unwind.Section] // under mu: .eh_frame while somebody holds it
	cache    string                       // the folder where unpacked sections are kept; "" is none
}

// segment is a program header.
type segment struct {
	typ           elf.ProgType
	flags         elf.ProgFlag
	off           Off
	vaddr         Vaddr
	filesz, memsz uint64
	align         uint64
}

// end is the first address behind the segment's bytes in the file.
func (s segment) end() Vaddr { return s.vaddr + Vaddr(s.filesz) }

// section is a section header.
type section struct {
	name    string
	typ     elf.SectionType
	flags   elf.SectionFlag
	addr    Vaddr
	off     Off
	size    uint64
	link    uint32
	info    uint32
	entsize uint64
}

func (s *section) contains(v Vaddr) bool { return v >= s.addr && uint64(v-s.addr) < s.size }

// parseImage reads the headers of an x86-64 ELF file. Its errors are
// *FormatError and what reading gives. A damaged section table is no error:
// programs run without one, so the file is taken to have none.
func parseImage(path string, r io.ReaderAt, size int64) (*image, error) {
	im := &image{path: path, r: r, size: size}
	h := make([]byte, sizeofEhdr)
	if size < sizeofEhdr {
		return nil, im.bad("the file", "is too short for an ELF header")
	}
	if _, err := r.ReadAt(h, 0); err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	le := binary.LittleEndian
	switch {
	case string(h[:4]) != elf.ELFMAG:
		return nil, im.bad("the file", "is not an ELF file")
	case elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB ||
		elf.Machine(le.Uint16(h[18:])) != elf.EM_X86_64:
		return nil, im.bad("the file", "is not for 64-bit x86")
	}
	im.typ = elf.Type(le.Uint16(h[16:]))
	im.entry = Vaddr(le.Uint64(h[24:]))
	if err := im.readSegments(le.Uint64(h[32:]), int(le.Uint16(h[54:])), int(le.Uint16(h[56:]))); err != nil {
		return nil, err
	}
	if !im.readSections(le.Uint64(h[40:]), int(le.Uint16(h[58:])), int(le.Uint16(h[60:])), int(le.Uint16(h[62:]))) {
		im.sections = nil
	}
	return im, nil
}

func (im *image) bad(what, why string) error {
	return &FormatError{Path: im.path, What: what, Why: why}
}

// bytes reads n bytes of the file at off, all of them or none.
func (im *image) bytes(off Off, n uint64, what string) ([]byte, error) {
	return im.append(nil, off, n, what)
}

// append is bytes, and appends them to b.
func (im *image) append(b []byte, off Off, n uint64, what string) ([]byte, error) {
	if err := im.holds(off, n, what); err != nil {
		return nil, err
	}
	out := slices.Grow(b, int(n))[:len(b)+int(n)]
	if err := im.fill(out[len(b):], off, what); err != nil {
		return nil, err
	}
	return out, nil
}

// text is bytes as a string, without a copy on the way.
func (im *image) text(off Off, n uint64, what string) (string, error) {
	if err := im.holds(off, n, what); err != nil {
		return "", err
	}
	var out strings.Builder
	out.Grow(int(n))
	b := make([]byte, min(n, readSize))
	for ; n > 0; n -= uint64(len(b)) {
		b = b[:min(n, readSize)]
		if err := im.fill(b, off, what); err != nil {
			return "", err
		}
		out.Write(b)
		off += Off(len(b))
	}
	return out.String(), nil
}

// holds returns an error if a range is outside the file or too large.
func (im *image) holds(off Off, n uint64, what string) error {
	if n > maxSection {
		return im.bad(what, "is larger than kprobe reads from a file")
	}
	if uint64(off) > uint64(im.size) || n > uint64(im.size)-uint64(off) {
		return im.bad(what, "reaches past the end of the file")
	}
	return nil
}

func (im *image) fill(b []byte, off Off, what string) error {
	if _, err := im.r.ReadAt(b, int64(off)); err != nil {
		return fmt.Errorf("read %s of %q: %w", what, im.path, err)
	}
	return nil
}

func (im *image) readSegments(off uint64, entsize, n int) error {
	if n == 0 {
		return nil
	}
	if entsize != sizeofPhdr || n > maxSegments {
		return im.bad("the program header table", "has an impossible size")
	}
	b, err := im.bytes(Off(off), uint64(n*sizeofPhdr), "the program header table")
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for ; len(b) >= sizeofPhdr; b = b[sizeofPhdr:] {
		s := segment{
			typ: elf.ProgType(le.Uint32(b)), flags: elf.ProgFlag(le.Uint32(b[4:])),
			off: Off(le.Uint64(b[8:])), vaddr: Vaddr(le.Uint64(b[16:])),
			filesz: le.Uint64(b[32:]), memsz: le.Uint64(b[40:]), align: le.Uint64(b[48:]),
		}
		if s.typ == elf.PT_LOAD && (uint64(s.vaddr)+s.memsz < s.memsz || uint64(s.off)+s.filesz < s.filesz || s.filesz > s.memsz) {
			return im.bad("a segment", "has impossible bounds")
		}
		if s.typ == elf.PT_LOAD { // a file that was cut short keeps what is left of the segment
			s.filesz = min(s.filesz, uint64(im.size)-min(uint64(s.off), uint64(im.size)))
		}
		im.segments = append(im.segments, s)
	}
	return nil
}

// readSections reports whether the section table could be read.
func (im *image) readSections(off uint64, entsize, n, strndx int) bool {
	if off == 0 || entsize != sizeofShdr {
		return false
	}
	first, err := im.bytes(Off(off), sizeofShdr, "the section table")
	if err != nil {
		return false
	}
	le := binary.LittleEndian
	if n == 0 { // more than fit the header's field: the first section holds the count
		n = int(min(le.Uint64(first[32:]), maxSections+1))
	}
	if strndx == int(elf.SHN_XINDEX) {
		strndx = int(le.Uint32(first[40:]))
	}
	if n > maxSections || strndx >= n {
		return false
	}
	b, err := im.bytes(Off(off), uint64(n*sizeofShdr), "the section table")
	if err != nil {
		return false
	}
	at := func(i int) section {
		h := b[i*sizeofShdr:]
		return section{
			typ: elf.SectionType(le.Uint32(h[4:])), flags: elf.SectionFlag(le.Uint64(h[8:])),
			addr: Vaddr(le.Uint64(h[16:])), off: Off(le.Uint64(h[24:])), size: le.Uint64(h[32:]),
			link: le.Uint32(h[40:]), info: le.Uint32(h[44:]), entsize: le.Uint64(h[56:]),
		}
	}
	names := at(strndx)
	text, err := im.bytes(names.off, min(names.size, 1<<24), "the section names")
	if err != nil {
		return false
	}
	im.sections = make([]section, n)
	for i := range im.sections {
		im.sections[i] = at(i)
		im.sections[i].name = cString(text, uint64(le.Uint32(b[i*sizeofShdr:])))
	}
	return true
}

// cString is the text at off up to its NUL; "" where there is none.
func cString(b []byte, off uint64) string {
	if off >= uint64(len(b)) {
		return ""
	}
	b = b[off:]
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return ""
}

// section returns the first section of that name, or nil.
func (im *image) section(name string) *section {
	for i := range im.sections {
		if im.sections[i].name == name {
			return &im.sections[i]
		}
	}
	return nil
}

// sectionAt returns the allocated section that holds the address, or nil.
func (im *image) sectionAt(v Vaddr) *section {
	for i := range im.sections {
		s := &im.sections[i]
		if s.flags&elf.SHF_ALLOC != 0 && s.flags&elf.SHF_TLS == 0 && s.contains(v) {
			return s
		}
	}
	return nil
}

// data reads a section's contents; nil, nil for a section without any in the
// file.
func (im *image) data(s *section) ([]byte, error) {
	if n, err := im.plain(s); n == 0 {
		return nil, err
	}
	return im.bytes(s.off, s.size, "section "+s.name)
}

// plain returns the number of bytes of a section's contents, without compression.
func (im *image) plain(s *section) (uint64, error) {
	if s == nil || s.typ == elf.SHT_NOBITS {
		return 0, nil
	}
	if s.size > 0 && s.flags&elf.SHF_COMPRESSED != 0 {
		return 0, im.bad("section "+s.name, "is compressed")
	}
	return s.size, nil
}

// load returns the PT_LOAD segment whose file contents hold the address.
func (im *image) load(v Vaddr) *segment {
	for i := range im.segments {
		s := &im.segments[i]
		if s.typ == elf.PT_LOAD && v >= s.vaddr && uint64(v-s.vaddr) < s.filesz {
			return s
		}
	}
	return nil
}

// at reads n bytes that the loaded file has at an address, or fewer where the
// segment ends before.
func (im *image) at(v Vaddr, n uint64, what string) ([]byte, error) {
	off, n, err := im.place(v, n, what)
	if err != nil {
		return nil, err
	}
	return im.bytes(off, n, what)
}

// place returns the offset in the file of the n bytes at an address, and how many of them the segment has.
func (im *image) place(v Vaddr, n uint64, what string) (Off, uint64, error) {
	s := im.load(v)
	if s == nil {
		return 0, 0, im.bad(what, "lies in no segment")
	}
	skip := uint64(v - s.vaddr)
	return s.off + Off(skip), min(n, s.filesz-skip), nil
}

// segmentOf returns the first segment of a type, or nil.
func (im *image) segmentOf(t elf.ProgType) *segment {
	for i := range im.segments {
		if im.segments[i].typ == t {
			return &im.segments[i]
		}
	}
	return nil
}
