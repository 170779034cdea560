package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

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
	mayWrite   = 2
	mostSegs   = 0xffff // more say so elsewhere
	mostPhdrs  = 1 << 20
)

// coreSegment is a segment of a core dump.
type coreSegment struct {
	kind, flags uint32
	off, length int64  // in the dump
	start       uint64 // in memory
	mapped      uint64 // bytes there
	cut         bool   // it doesn't lie within the dump, which was cut off
}

// InCore finds the memory files in a core dump of so many bytes: memory that a process
// shares and that has no name any more is in it by default (core(5), coredump_filter).
func InCore(r io.ReaderAt, size int64) (files []*io.SectionReader, err error) {
	segs, err := segments(r, size)
	if err != nil {
		return nil, err
	}
	for i := range segs {
		s := &segs[i]
		if s.kind != segLoad || s.cut || s.length < ring.PageSize {
			continue
		}
		var magic [len(ring.Magic)]byte
		if _, err := r.ReadAt(magic[:], s.off); err == nil && string(magic[:]) == ring.Magic {
			files = append(files, io.NewSectionReader(r, s.off, s.length))
		}
	}
	return files, nil
}

// CutOff reports whether a core dump of so many bytes ends before the memory does that it says it has.
func CutOff(r io.ReaderAt, size int64) bool {
	segs, err := segments(r, size)
	return err == nil && slices.ContainsFunc(segs, func(s coreSegment) bool { return s.kind == segLoad && s.cut })
}

// segments lists the segments of a core dump.
func segments(r io.ReaderAt, size int64) (list []coreSegment, err error) {
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
		if off < 0 || length < 0 {
			continue
		}
		list = append(list, coreSegment{
			kind: le.Uint32(b), flags: le.Uint32(b[4:]), off: off, length: length, start: le.Uint64(b[16:]), mapped: le.Uint64(b[40:]),
			cut: off > size || length > size-off,
		})
	}
	return list, nil
}
