package symbols

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"syscall"
)

// Bounds on compressed sections of debug information, in bytes: what one may
// unpack to, and from what size on it is unpacked to a file, whose pages need not
// stay in memory.
const (
	maxUnpacked = 2 << 30
	toFileFrom  = 8 << 20
)

// unpack reads a compressed section. A large one goes to a file: to one that is
// kept, so that it isn't unpacked again, else, the disk being full perhaps, to one
// without a name; and where no file can be had to memory.
func (im *image) unpack(name string) ([]byte, error) {
	damaged := func(err error) error { return im.bad("section "+name, "could not be unpacked: "+err.Error()) }
	f, err := elf.NewFile(im.r)
	if err != nil {
		return nil, damaged(err)
	}
	s := f.Section(name)
	if s == nil || s.Size > maxUnpacked {
		return nil, im.bad("section "+name, "is larger than what is read of a file")
	}
	kept := im.keptSection(s)
	if b := kept.load(); b != nil {
		im.keep(unpacked{name, b})
		return b, nil
	}
	if s.Size < toFileFrom { // what a damaged header says is not believed
		var small bytes.Buffer
		_, err = io.CopyN(&small, s.Open(), toFileFrom)
		if err == io.EOF {
			return small.Bytes(), nil
		}
		if err != nil {
			return nil, damaged(err)
		}
	}
	for _, to := range [...]func(io.Reader) ([]byte, error){kept.save, unpackToFile} {
		src := &sourceReader{r: io.LimitReader(s.Open(), maxUnpacked)}
		b, err := to(src)
		if err == nil {
			im.keep(unpacked{name, b})
			return b, nil
		}
		if src.err != nil {
			return nil, damaged(src.err)
		}
	}
	b, err := io.ReadAll(io.LimitReader(s.Open(), maxUnpacked))
	if err != nil {
		return nil, damaged(err)
	}
	return b, nil
}

// sourceReader remembers what went wrong in reading, not in writing.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
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
