package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/klauspost/compress/zlib"

	"kprobe/internal/untrusted"
	"kprobe/symbols/inflate"
)

// Limits on compressed sections of debug information, in bytes: the unpacked size of one section;
// the unpacked size of all sections of a file, which is a constant and a multiple of the file's
// size (debug information of compilers packs to a half or a tenth); and the size from which on a
// section is unpacked to a file, whose pages need not stay in memory.
const (
	maxUnpacked  = 2 << 30
	alwaysUnpack = 64 << 20
	mostPacked   = 64
	toFileFrom   = 8 << 20
)

// unpackTo returns the size to which a file, or a section, of n bytes may unpack.
func unpackTo(n int64) int64 { return alwaysUnpack + mostPacked*min(n, untrusted.MaxSize) }

// allow subtracts n bytes from the size to which the file may still unpack.
func (im *image) allow(n int64) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	if n > unpackTo(im.size)-im.grown {
		return false
	}
	im.grown += n
	return true
}

// unpack reads a compressed section. It unpacks a large one to a file that is kept, so that
// the work isn't repeated. If that fails, for instance because the disk is full, it uses a
// file without a name, and if that fails, memory.
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
			return nil, im.bad("section "+name, "is not compressed, although its name says so")
		}
		size = binary.BigEndian.Uint64(h[4:])
	}
	if size > maxUnpacked {
		return nil, im.bad("section "+name, "is larger than kprobe reads from a file")
	}
	most := int64(size) // no more is read than the header says
	if !im.allow(most) {
		return nil, im.bad("section "+name, "unpacks to more than kprobe reads from a file of this size")
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
	stream, at := im.zlibStream(s)
	for _, to := range [...]func(io.Reader) ([]byte, error){kept.save, unpackToFile} {
		src := &sourceReader{r: im.packed(s), left: most, stream: stream, release: releaser(im.whole, at)}
		b, err := to(src)
		if errors.Is(src.err, inflate.ErrDoubt) {
			stream = nil
			src = &sourceReader{r: im.packed(s), left: most}
			b, err = to(src)
		}
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

// packed returns a reader of a compressed section. For a mapped file in zlib's format it uses
// a package that takes three quarters of the standard library's time.
func (im *image) packed(s *elf.Section) io.Reader {
	stream, _ := im.zlibStream(s)
	if stream == nil {
		return s.Open()
	}
	r, err := zlib.NewReader(bytes.NewReader(stream))
	if err != nil {
		return s.Open() // its error says what is wrong
	}
	return r
}

// zlibStream returns the bytes of a compressed section in zlib's format and their place in the file, nil for another
// format or if the file isn't mapped.
func (im *image) zlibStream(s *elf.Section) (stream []byte, at uint64) {
	from, end := s.Offset, s.Offset+s.FileSize
	if im.whole == nil || end < from || end > uint64(len(im.whole)) {
		return nil, 0
	}
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		from += zdebugHeader
	} else {
		const header = 24 // an Elf64_Chdr, which begins with ch_type
		if end-from < header || elf.CompressionType(binary.LittleEndian.Uint32(im.whole[from:])) != elf.COMPRESS_ZLIB {
			return nil, 0
		}
		from += header
	}
	if from > end {
		return nil, 0
	}
	return im.whole[from:end:end], from
}

// zdebugHeader is the size of the header of .zdebug_* sections.
const zdebugHeader = 12

// sourceReader reads as many bytes as a section has by its header. It remembers errors of
// reading, as distinct from errors of writing.
type sourceReader struct {
	r    io.Reader
	left int64
	err  error
	// stream, if it isn't nil, is what WriteTo unpacks, faster than r does; its pages are then let go.
	stream  []byte
	release func(from, to uint64)
}

// WriteTo copies all bytes, on behalf of io.Copy. If stream may be damaged, err is inflate.ErrDoubt, and r has to say
// what is wrong.
func (s *sourceReader) WriteTo(w io.Writer) (int64, error) {
	if s.stream == nil {
		return io.Copy(w, struct{ io.Reader }{s})
	}
	released := 0
	err := inflate.Copy(w, s.stream, s.left, func(n int) {
		if n-released >= releaseAtOnce {
			s.release(uint64(released), uint64(n))
			released = n
		}
	})
	if errors.Is(err, inflate.ErrDoubt) {
		s.err = err
	}
	return s.left, err
}

// releaseAtOnce is how many bytes of a compressed section are read before their pages are released.
const releaseAtOnce = 8 << 20

func (s *sourceReader) Read(b []byte) (int, error) {
	if s.left == 0 {
		// A wrong checksum is reported only after the last byte.
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

// unpackToFile writes to a file without a name, and maps it.
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
