package symbols

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path"
	"strings"

	"kprobe/internal/procfs"
)

// What runtimes dump of their code
//
// node --perf-prof, the JVM with perf's libperf-jvmti and others write a file jit-PID.dump
// (linux/tools/perf/Documentation/jitdump-specification.txt), and map a page of it as
// code so that it is found. It holds records of code that was compiled, with its bytes, and
// of code that was moved. Only headers and names are read. Who may have written it, and
// how much is read of it, is as with maps (perfmap.go).

// The bounds of a dump.
const (
	maxJITLines = 1 << 19
	maxJITLook  = 1 << 17 // records that one look reads
	maxJITName  = 512
	jitHead     = 16
	jitMagic    = 0x4a695444 // as the machine that wrote it has it
)

// The records that are read: code, and that it has moved.
const (
	jitLoad = 0
	jitMove = 1
)

// jitDump is what was read of a dump, besides names.
type jitDump struct {
	byIndex map[uint64]string // names by the numbers of code, for what moves
	broken  bool              // what comes is no dump
}

// refreshDump is refresh of a dump.
func (p *perfMap) refreshDump(pid int) bool {
	status, err := procfs.Image(pid).Status()
	if err != nil {
		return false
	}
	name := dumpOf(pid, status)
	if name == "" {
		return false
	}
	f, info, err := openForeign(pid, name, status)
	if err != nil {
		return false
	}
	defer f.Close()
	if p.file == nil || !os.SameFile(p.file, info) || info.Size() < p.read {
		p.lines, p.read, p.dump = nil, 0, &jitDump{byIndex: map[uint64]string{}}
	}
	p.file = info
	had := len(p.lines)
	p.read = p.dump.take(f, p.read, info.Size(), &p.lines)
	if len(p.lines) == had {
		return false
	}
	p.paint()
	return true
}

// dumpOf is the dump that a process has mapped, of its own number; "" is none.
func dumpOf(pid int, status procfs.Status) string {
	maps, err := ReadMaps(pid)
	if err != nil {
		return ""
	}
	name := "jit-" + ownNumber(pid, status) + ".dump"
	for i := range maps {
		if m := &maps[i]; m.Exec && m.IsFile() && !m.Deleted && path.Base(m.Path) == name {
			return m.Path
		}
	}
	return ""
}

// take reads records from one on, as far as they are whole, and gives where the next
// begins.
func (d *jitDump) take(f io.ReaderAt, at, size int64, lines *[]perfLine) int64 {
	le := binary.LittleEndian
	var buf [jitHead + 48 + maxJITName]byte
	read := func(at int64, n int) []byte {
		n, _ = f.ReadAt(buf[:n], at) // what isn't there is seen by its length
		return buf[:n]
	}
	if at == 0 {
		h := read(0, 40)
		if len(h) < 40 {
			return 0
		}
		n := int64(le.Uint32(h[8:]))
		if le.Uint32(h) != jitMagic || le.Uint32(h[4:]) != 1 || n < 40 || n > 4096 {
			d.broken = true
			return 0
		}
		at = n
	}
	for range maxJITLook {
		if d.broken || len(*lines) >= maxJITLines || at+jitHead > size {
			return at
		}
		b := read(at, len(buf))
		if len(b) < jitHead {
			return at
		}
		id, n := le.Uint32(b), int64(le.Uint32(b[4:]))
		if n < jitHead {
			d.broken = true // what follows can't be found
			return at
		}
		if at+n > size {
			return at // still being written
		}
		d.record(id, b[jitHead:min(int64(len(b)), n)], lines)
		at += n
	}
	return at
}

// record takes the beginning of a record, behind its head.
func (d *jitDump) record(id uint32, b []byte, lines *[]perfLine) {
	le := binary.LittleEndian
	word := func(i int) uint64 { return le.Uint64(b[8*i:]) } // the first is process and thread
	add := func(start, size uint64, name string) {
		if size > 0 && start+size > start && name != "" {
			*lines = append(*lines, perfLine{Addr(start), Addr(start + size), name})
		}
	}
	switch {
	case id == jitLoad && len(b) > 40: // process and thread, vma, address, size, index, name
		name, _, ended := bytes.Cut(b[40:], []byte{0})
		if !ended && len(b) < 48+maxJITName {
			return // it has no end: nothing that anybody wrote so
		}
		text := strings.Clone(string(name))
		if len(d.byIndex) < maxJITLines {
			d.byIndex[word(4)] = text
		}
		add(word(2), word(3), text)
	case id == jitMove && len(b) >= 48: // process and thread, vma, old and new address, size, index
		add(word(3), word(4), d.byIndex[word(5)])
	}
}
