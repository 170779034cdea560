package symbols

import (
	"debug/elf"
	"encoding/binary"
	"slices"
)

// maxLinked bounds the walk along the dynamic linker's list, which lies in
// memory that the process can write.
const maxLinked = 1 << 14

// followLinkMap sorts modules as the process's dynamic linker has them in its
// list (struct r_debug and struct link_map of <link.h>; glibc and musl agree).
// Those that are not in it keep their order behind the others. Without memory,
// or before the linker has run, nothing changes.
func (s *Space) followLinkMap(list []*Module) {
	order := s.linkMap(list)
	if len(order) == 0 {
		return
	}
	at := func(m *Module) int {
		if i := slices.Index(order, Addr(m.Bias)); i >= 0 && m.Name != "[vdso]" {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(list, func(x, y *Module) int { return at(x) - at(y) })
}

// linkMap reads the biases of the linked modules, in order.
func (s *Space) linkMap(list []*Module) []Addr {
	i := slices.IndexFunc(list, func(m *Module) bool { return m.Main })
	if s.mem == nil || i < 0 {
		return nil
	}
	main := list[i]
	seg := main.File.im.segmentOf(elf.PT_DYNAMIC)
	if seg == nil {
		return nil
	}
	var debug Addr
	for at := main.Addr(seg.vaddr); at < main.Addr(seg.vaddr)+Addr(min(seg.memsz, maxNoteBytes)); at += 16 {
		tag, ok := s.word(at)
		if !ok || elf.DynTag(tag) == elf.DT_NULL {
			break
		}
		if elf.DynTag(tag) == elf.DT_DEBUG {
			v, _ := s.word(at + 8)
			debug = Addr(v)
			break
		}
	}
	if debug == 0 {
		return nil
	}
	const mapField, nextField = 8, 24
	node, ok := s.word(debug + mapField)
	var out []Addr
	for ; ok && node != 0 && len(out) < maxLinked; node, ok = s.word(Addr(node) + nextField) {
		bias, ok := s.word(Addr(node))
		if !ok {
			break
		}
		out = append(out, Addr(bias))
	}
	return out
}

// word reads eight bytes of the process's memory.
func (s *Space) word(a Addr) (uint64, bool) {
	if s.mem == nil {
		return 0, false
	}
	var b [8]byte
	if n, err := s.mem.ReadMemory(b[:], a); err != nil || n != len(b) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}
