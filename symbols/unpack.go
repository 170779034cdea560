package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"syscall"

	"github.com/klauspost/compress/zlib"

	"kprobe/internal/untrusted"
)

// Bounds on compressed sections of debug information, in bytes: what one may
// unpack to; what all of a file may, together, of which some whatever its size and
// the rest a multiple of it (compilers' debug information packs to a half or a
// tenth); and from what size on one is unpacked to a file, whose pages need not
// stay in memory.
const (
	maxUnpacked  = 2 << 30
	alwaysUnpack = 64 << 20
	mostPacked   = 64
	toFileFrom   = 8 << 20
)

// unpackTo is what a file, or a section of it, of n bytes may unpack to.
func unpackTo(n int64) int64 { return alwaysUnpack + mostPacked*min(n, untrusted.MaxSize) }

// allow takes n bytes from what the file may unpack to.
func (im *image) allow(n int64) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	if n > unpackTo(im.size)-im.grown {
		return false
	}
	im.grown += n
	return true
}

// unpack reads a compressed section. A large one goes to a file: to one that is
// kept, so that it isn't unpacked again, else, the disk being full perhaps, to one
// without a name; and where no file can be had to memory.
func (im *image) unpack(name string) ([]byte, error) {
	damaged := func(err error) error { return im.bad("section "+name, "could not be unpacked: "+err.Error()) }
	r := im.r
	if im.whole != nil { // the file may be closed by now
		r = bytes.NewReader(im.whole)
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, damaged(err)
	}
	s := f.Section(name)
	if s == nil {
		return nil, damaged(io.ErrUnexpectedEOF)
	}
	size := s.Size
	if s.Flags&elf.SHF_COMPRESSED == 0 { // .zdebug_*: "ZLIB" and the size, the most significant byte first
		var h [zdebugHeader]byte
		if _, err := r.ReadAt(h[:], int64(s.Offset)); err != nil || string(h[:4]) != "ZLIB" {
			return nil, im.bad("section "+name, "is not packed as its name says")
		}
		size = binary.BigEndian.Uint64(h[4:])
	}
	if size > maxUnpacked {
		return nil, im.bad("section "+name, "is larger than what is read of a file")
	}
	most := int64(size) // more than the header says isn't read
	if !im.allow(most) {
		return nil, im.bad("section "+name, "unpacks to more than what is read of a file of its size")
	}
	kept := im.keptSection(s)
	if b := kept.load(); b != nil {
		im.keep(unpacked{name, b})
		return b, nil
	}
	if size < toFileFrom {
		small := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
		if _, err := small.ReadFrom(&sourceReader{r: im.packed(s), left: most}); err != nil {
			return nil, damaged(err)
		}
		return small.Bytes(), nil
	}
	for _, to := range [...]func(io.Reader) ([]byte, error){kept.save, unpackToFile} {
		src := &sourceReader{r: im.packed(s), left: most}
		b, err := to(src)
		if err == nil {
			im.keep(unpacked{name, b})
			return b, nil
		}
		if src.err != nil {
			return nil, damaged(src.err)
		}
	}
	b, err := io.ReadAll(&sourceReader{r: im.packed(s), left: most})
	if err != nil {
		return nil, damaged(err)
	}
	return b, nil
}

// packed reads what is in a compressed section. Of a mapped file zlib's format is read by
// a package that takes some three quarters of the standard library's time.
func (im *image) packed(s *elf.Section) io.Reader {
	from, end := s.Offset, s.Offset+s.FileSize
	if im.whole == nil || end < from || end > uint64(len(im.whole)) {
		return s.Open()
	}
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		from += zdebugHeader
	} else {
		const header = 24 // an Elf64_Chdr, which begins with ch_type
		if end-from < header || elf.CompressionType(binary.LittleEndian.Uint32(im.whole[from:])) != elf.COMPRESS_ZLIB {
			return s.Open()
		}
		from += header
	}
	if from > end {
		return s.Open()
	}
	r, err := zlib.NewReader(bytes.NewReader(im.whole[from:end]))
	if err != nil {
		return s.Open() // says what is wrong
	}
	return r
}

// zdebugHeader is how many bytes are in front of what .zdebug_* sections hold.
const zdebugHeader = 12

// sourceReader reads as many bytes as a section has by its header, and remembers
// what went wrong in reading, not in writing.
type sourceReader struct {
	r    io.Reader
	left int64
	err  error
}

func (s *sourceReader) Read(b []byte) (int, error) {
	if s.left == 0 {
		// A checksum that is wrong is told behind the last byte.
		var more [1]byte
		if n, err := s.r.Read(more[:]); n == 0 && err != nil && err != io.EOF {
			s.err = err
			return 0, err
		}
		return 0, io.EOF
	}
	n, err := s.r.Read(b[:min(int64(len(b)), s.left)])
	s.left -= int64(n)
	if err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// unpacked is a section that was unpacked to a file.
type unpacked struct {
	name  string
	bytes []byte // mapped
}

func (im *image) keep(u unpacked) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.unpacked = append(im.unpacked, u)
}

// unpackToFile writes to a file that has no name, and maps it.
func unpackToFile(r io.Reader) ([]byte, error) {
	f, err := os.CreateTemp("", "kprobe-*.tmp")
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping stays
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	n, err := io.Copy(f, r)
	if err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, int(n), syscall.PROT_READ, syscall.MAP_SHARED)
}
