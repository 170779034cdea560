package flight

import (
	"bytes"
	"encoding/binary"
	"io"

	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Constants of the note that lists mapped files (NT_FILE, core(5)).
const (
	segNote   = 4
	noteFile  = 0x46494c45
	noteHead  = 12
	mostNotes = 64 << 20 // bytes of a segment of notes
)

// CoreFile is a file that was mapped when a core dump was made.
type CoreFile struct {
	Name  string
	Start symbols.Addr // of the mapping that begins with its first byte
	Size  uint64       // of that mapping
	Part  Part
	Write bool // it could be written to, or has no segment that says so
}

// Part is what a core dump has of a mapping.
type Part uint8

// What it may have.
const (
	LeftOut Part = iota // not all, by /proc/PID/coredump_filter
	Cut                 // not all: the dump was cut off
	Whole
)

// IsMemoryFile reports whether it is a memory file without a name.
func (c *CoreFile) IsMemoryFile() bool { return c.Name == "/memfd:"+ring.MemfdName+" (deleted)" }

// FilesInCore lists the files that a core dump of so many bytes says were mapped from their first byte on. The
// dump's list may be missing or damaged: then there are fewer.
func FilesInCore(r io.ReaderAt, size int64) (list []CoreFile) {
	segs, err := segments(r, size)
	if err != nil {
		return nil
	}
	for i := range segs {
		s := &segs[i]
		if s.kind != segNote || s.cut || s.length > mostNotes {
			continue
		}
		b := make([]byte, s.length)
		if _, err := r.ReadAt(b, s.off); err != nil {
			continue
		}
		for len(b) >= noteHead {
			le := binary.LittleEndian
			name, desc := align4(le.Uint32(b)), align4(le.Uint32(b[4:]))
			if uint64(len(b)) < noteHead+name+desc {
				break
			}
			if le.Uint32(b[8:]) == noteFile {
				list = append(list, mappedFiles(b[noteHead+name:noteHead+name+desc])...)
			}
			b = b[noteHead+name+desc:]
		}
	}
	for i := range list {
		list[i].look(segs)
	}
	return list
}

// look finds what the segments have of a file.
func (c *CoreFile) look(segs []coreSegment) {
	c.Write = true
	for i := range segs {
		s := &segs[i]
		if s.kind != segLoad || s.start != uint64(c.Start) {
			continue
		}
		c.Write = s.flags&mayWrite != 0
		switch {
		case uint64(s.length) < c.Size:
		case s.cut:
			c.Part = Cut
		default:
			c.Part = Whole
		}
		return
	}
}

func align4(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }

// mappedFiles reads the list of mapped files: their count, the unit of offsets, three numbers for each, and their names.
func mappedFiles(b []byte) (list []CoreFile) {
	const head, entry = 16, 24
	if len(b) < head {
		return nil
	}
	le := binary.LittleEndian
	n := le.Uint64(b)
	if n > uint64(len(b)-head)/entry {
		return nil
	}
	numbers, names := b[head:head+n*entry], b[head+n*entry:]
	for ; len(numbers) > 0; numbers = numbers[entry:] {
		name, rest, ok := bytes.Cut(names, []byte{0})
		if !ok {
			break
		}
		if names = rest; le.Uint64(numbers[16:]) == 0 {
			start, end := le.Uint64(numbers), le.Uint64(numbers[8:])
			list = append(list, CoreFile{Name: string(name), Start: symbols.Addr(start), Size: end - start})
		}
	}
	return list
}
