//go:build linux && amd64

package tracee

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"

	"kprobe/symbols"
)

// findPadding places the code after the last byte of a loaded executable segment, in the rest
// of its page. If every text fills its last page, the code goes after the vDSO's.
func (p *Process) findPadding(r *room, maps []symbols.Mapping) bool {
	for i := range maps {
		m := &maps[i]
		if m.Inode == 0 || m.Perms() != "r-xp" {
			continue
		}
		base, ok := moduleBase(maps, m)
		if !ok {
			continue
		}
		end, ok := p.segmentEnd(base, m)
		if !ok || end+ScratchCode > uint64(m.End) {
			continue
		}
		saved := make([]byte, len(InjectedCode()))
		at := (end + 15) &^ 15
		if at+ScratchCode > uint64(m.End) {
			continue
		}
		if _, err := p.ReadMemory(saved, symbols.Addr(at)); err != nil {
			continue
		}
		r.code, r.saved = at, saved
		return true
	}
	return p.findVDSO(r, maps)
}

// findVDSO places the code at the end of the vDSO, if there are zeros: the kernel maps whole
// pages of it. Code that a killed tracer left there serves as well.
func (p *Process) findVDSO(r *room, maps []symbols.Mapping) bool {
	for i := range maps {
		m := &maps[i]
		if m.Path != "[vdso]" || !m.Exec {
			continue
		}
		at := uint64(m.End) - ScratchCode
		have, none := make([]byte, ScratchCode), make([]byte, len(InjectedCode()))
		if _, err := p.ReadMemory(have, symbols.Addr(at)); err != nil {
			return false
		}
		if !allZero(have) && !bytes.HasPrefix(have, InjectedCode()) {
			return false
		}
		r.code, r.saved = at, none
		return true
	}
	return false
}

// moduleBase finds the mapping of the ELF header that m belongs to.
func moduleBase(maps []symbols.Mapping, m *symbols.Mapping) (uint64, bool) {
	for i := range maps {
		q := &maps[i]
		if q.Inode == m.Inode && q.Major == m.Major && q.Minor == m.Minor && q.Off == 0 && q.Start <= m.Start {
			return uint64(q.Start), true
		}
	}
	return 0, false
}

// segmentEnd reads from the program headers in memory where the segment ends that m maps.
func (p *Process) segmentEnd(base uint64, m *symbols.Mapping) (uint64, bool) {
	for _, g := range p.segments(base) {
		if g.start&^(pageSize-1) == uint64(m.Start) && (g.end+pageSize-1)&^(pageSize-1) == uint64(m.End) {
			return g.end, true
		}
	}
	return 0, false
}

// segment is a loaded segment of a module.
type segment struct {
	start, end uint64
	writable   bool
}

// segments reads the loaded segments from the program headers in memory, given the address of
// the ELF header.
func (p *Process) segments(base uint64) (out []segment) {
	var h [64]byte
	if _, err := p.ReadMemory(h[:], symbols.Addr(base)); err != nil || string(h[:5]) != "\x7fELF\x02" {
		return nil
	}
	le := binary.LittleEndian
	off, size, n := le.Uint64(h[32:]), int(le.Uint16(h[54:])), int(le.Uint16(h[56:]))
	const phdrSize, maxPhdrs = 56, 64
	if size != phdrSize || n == 0 || n > maxPhdrs || off > pageSize {
		return nil
	}
	ph := make([]byte, size*n)
	if _, err := p.ReadMemory(ph, symbols.Addr(base+off)); err != nil {
		return nil
	}
	const ptLoad, pfW = 1, 2
	bias, found := uint64(0), false
	for i := range n {
		e := ph[i*size:]
		if le.Uint32(e) == ptLoad && le.Uint64(e[8:]) == 0 {
			bias, found = base-le.Uint64(e[16:])&^(pageSize-1), true
		}
	}
	for i := range n {
		if e := ph[i*size:]; found && le.Uint32(e) == ptLoad {
			start := bias + le.Uint64(e[16:])
			out = append(out, segment{start, start + le.Uint64(e[40:]), le.Uint32(e[4:])&pfW != 0})
		}
	}
	return out
}

// findTail places the image after a module's data, in the rest of its last page: zeros, or more
// of the file. It is for system calls, which need no stack. The loader uses the rest after its
// own data, and musl's loader gives the rest after everybody's to malloc.
func (p *Process) findTail(r *room, maps []symbols.Mapping, size int) bool {
	if slices.ContainsFunc(maps, func(m symbols.Mapping) bool { return strings.Contains(m.Path, "musl") }) {
		return false
	}
	for i := range maps {
		m := &maps[i]
		if m.Inode == 0 || m.Off != 0 || strings.HasPrefix(path.Base(m.Path), "ld-") {
			continue
		}
		for _, g := range p.segments(uint64(m.Start)) {
			base := (g.end + frameAlign - 1) &^ (frameAlign - 1)
			last := (g.end + pageSize - 1) &^ (pageSize - 1)
			b := make([]byte, size+2*bufferSize)
			if !g.writable || base+uint64(len(b)) > last || !writableAt(maps, base, last) {
				continue
			}
			if _, err := p.ReadMemory(b, symbols.Addr(base)); err == nil && !p.waitsIn(base-bufferSize, last) {
				r.place(base, size)
				r.wipe, r.under = true, b
				return true
			}
		}
	}
	return false
}

// writableAt reports whether private writable memory is mapped at [lo, hi).
func writableAt(maps []symbols.Mapping, lo, hi uint64) bool {
	return slices.ContainsFunc(maps, func(m symbols.Mapping) bool {
		return m.Contains(symbols.Addr(lo)) && hi <= uint64(m.End) && strings.HasPrefix(m.Perms(), "rw-p")
	})
}
