package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"kprobe/probe/ring"
)

// ErrNotCore says that a file isn't a core dump of an x86-64 process.
var ErrNotCore = errors.New("it is no core dump of an x86-64 process")

// Constants of ELF (elf(5)).
const (
	elfHeader  = 64
	progHeader = 56
	typeCore   = 4
	machineX86 = 62
	segLoad    = 1
	mostSegs   = 0xffff // more say so elsewhere
	mostPhdrs  = 1 << 20
)

// InCore finds the memory files in a core dump of so many bytes: memory that a process
// shares and that has no name any more is in it by default (core(5), coredump_filter).
func InCore(r io.ReaderAt, size int64) (files []*io.SectionReader, err error) {
	var h [elfHeader]byte
	le := binary.LittleEndian
	if _, err := r.ReadAt(h[:], 0); err != nil || string(h[:6]) != "\x7fELF\x02\x01" || le.Uint16(h[16:]) != typeCore || le.Uint16(h[18:]) != machineX86 {
		return nil, ErrNotCore
	}
	at, n := int64(le.Uint64(h[32:])), int64(le.Uint16(h[56:]))
	if n == mostSegs {
		// Their number is in the first section's header, as its sh_info.
		var s [64]byte
		if _, err := r.ReadAt(s[:], int64(le.Uint64(h[40:]))); err != nil {
			return nil, fmt.Errorf("read the core dump: %w", err)
		}
		n = int64(le.Uint32(s[44:]))
	}
	if at < 0 || n > mostPhdrs || at > size || n*progHeader > size-at {
		return nil, ErrNotCore
	}
	b := make([]byte, n*progHeader)
	if _, err := r.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("read the core dump: %w", err)
	}
	for ; len(b) > 0; b = b[progHeader:] {
		off, length := int64(le.Uint64(b[8:])), int64(le.Uint64(b[32:]))
		if le.Uint32(b) != segLoad || length < ring.PageSize || off < 0 || off > size || length > size-off {
			continue
		}
		var magic [len(ring.Magic)]byte
		if _, err := r.ReadAt(magic[:], off); err == nil && string(magic[:]) == ring.Magic {
			files = append(files, io.NewSectionReader(r, off, length))
		}
	}
	return files, nil
}
