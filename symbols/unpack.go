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
	toFileFrom  = 32 << 20
)

// unpack reads a compressed section.
func (im *image) unpack(name string) ([]byte, error) {
	f, err := elf.NewFile(im.r)
	if err != nil {
		return nil, im.bad("section "+name, "could not be unpacked: "+err.Error())
	}
	s := f.Section(name)
	if s == nil || s.Size > maxUnpacked {
		return nil, im.bad("section "+name, "is larger than what is read of a file")
	}
	// What a damaged header says of the size is not believed.
	r := io.LimitReader(s.Open(), maxUnpacked)
	var small bytes.Buffer
	if _, err = io.CopyN(&small, r, toFileFrom); err == nil {
		b, mapped, err := unpackToFile(io.MultiReader(&small, r))
		if mapped {
			im.unpacked = append(im.unpacked, unpacked{name, b})
		}
		if err == nil {
			return b, nil
		}
		return nil, im.bad("section "+name, "could not be unpacked: "+err.Error())
	}
	if err != io.EOF {
		return nil, im.bad("section "+name, "could not be unpacked: "+err.Error())
	}
	return small.Bytes(), nil
}

// unpacked is a section that was unpacked to a file.
type unpacked struct {
	name  string
	bytes []byte // mapped
}

// unpackToFile writes to a file that has no name, and maps it. Where no file can
// be had it is memory.
func unpackToFile(r io.Reader) (b []byte, mapped bool, err error) {
	f, err := os.CreateTemp("", "kprobe-*.tmp")
	if err != nil {
		b, err = io.ReadAll(r)
		return b, false, err
	}
	defer f.Close() // the mapping stays
	if err := os.Remove(f.Name()); err != nil {
		return nil, false, err
	}
	n, err := io.Copy(f, r)
	if err != nil {
		return nil, false, err
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(n), syscall.PROT_READ, syscall.MAP_SHARED)
	return b, err == nil, err
}
