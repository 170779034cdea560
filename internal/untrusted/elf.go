package untrusted

import (
	"debug/elf"
	"os"
)

// ELF is an ELF file as the standard library reads it.
type ELF struct {
	*elf.File
	r *os.File
}

// OpenELF opens an ELF file as Open does; its errors are those of Open and of
// elf.NewFile.
func OpenELF(path string) (*ELF, error) {
	r, _, err := Open(path)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(r)
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return &ELF{f, r}, nil
}

// Close closes the file.
func (e *ELF) Close() error { return e.r.Close() }
