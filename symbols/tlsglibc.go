package symbols

import "debug/elf"

// Where glibc keeps thread-local blocks
//
// The dynamic linker has a list of slots, one for each module with thread-local variables. A
// slot has the module's link_map, and the generation in which the module was loaded. The slot's
// number is the module's number, which indexes the threads' vectors (DTV). If a thread's vector
// has an older generation than the module, its entry may belong to a library that had the number
// before. libc.so.6 (before 2.34 libpthread.so.0) describes the layout of these structures for
// debuggers, in symbols _thread_db_* (nptl_db/structs.def). Each is three u32: a field's bits,
// how many there are, and its offset.

const (
	// maxTLSModules limits the slots that are examined.
	maxTLSModules = 1 << 16
	// maxStaticTLS limits l_tls_offset as a distance from the thread pointer. 0 means that
	// there is none yet, and all ones that there never will be (NO_TLS_OFFSET,
	// FORCED_DYNAMIC_TLS_OFFSET).
	maxStaticTLS = 1 << 30
)

// The fields of glibc's structures that are read.
const (
	rtldSlots = iota // _rtld_global._dl_tls_dtv_slotinfo_list
	slotsLen         // of struct dtv_slotinfo_list
	slotsNext
	slotsArray // of struct dtv_slotinfo
	slotGen
	slotMap
	mapOffset // struct link_map.l_tls_offset
	glibcFields
)

var glibcFieldNames = [glibcFields]string{
	"rtld_global__dl_tls_dtv_slotinfo_list", "dtv_slotinfo_list_len", "dtv_slotinfo_list_next",
	"dtv_slotinfo_list_slotinfo", "dtv_slotinfo_gen", "dtv_slotinfo_map", "link_map_l_tls_offset",
}

// glibcLayout has the offsets of the fields in their structures, in bytes.
type glibcLayout struct {
	s      *Space
	off    [glibcFields]Addr
	stride Addr // between slots
}

// glibcTLS finds a module's block in the dynamic linker's list. listed is false in processes
// with another C library. ok is false if the list doesn't have the module.
func (s *Space) glibcTLS(m *Module) (out TLSBlock, ok, listed bool) {
	g, ok := s.glibcLayout()
	list, known := s.rtldGlobal()
	if !ok || !known {
		return out, false, false
	}
	list, ok = g.field(list, rtldSlots)
	for id := Addr(0); ok && list != 0 && id < maxTLSModules; {
		n, has := g.field(list, slotsLen)
		if !has || n == 0 || n > maxTLSModules {
			break
		}
		for i := range n {
			slot := list + g.off[slotsArray] + i*g.stride
			link, has := g.field(slot, slotMap)
			if !has || link == 0 || !s.isMap(link, m) {
				continue
			}
			gen, has := g.field(slot, slotGen)
			offset, has2 := g.field(link, mapOffset)
			if has2 && offset > 0 && offset < maxStaticTLS {
				return TLSBlock{Static: true, Offset: -int64(offset), Module: uint64(id + i)}, true, true
			}
			return TLSBlock{Module: uint64(id + i), Generation: uint64(gen)}, has && has2, true
		}
		id += n
		list, ok = g.field(list, slotsNext)
	}
	return out, false, true
}

// glibcLayout reads the layout of the structures.
func (s *Space) glibcLayout() (g glibcLayout, ok bool) {
	g.s = s
	for _, m := range s.Modules() {
		if m.Main || m.File == nil || m.File.lookupRaw("_thread_db_"+glibcFieldNames[0]) == nil {
			continue
		}
		for i, name := range glibcFieldNames {
			list := m.File.lookupRaw("_thread_db_" + name)
			if list == nil {
				return g, false
			}
			at := m.Addr(list[0].Vaddr)
			head, ok := s.word(at)
			tail, ok2 := s.word(at + 4)
			bits := uint32(head)
			if !ok || !ok2 || bits == 0 || i != slotsArray && bits != 64 {
				return g, false
			}
			if g.off[i] = Addr(tail >> 32); i == slotsArray {
				g.stride = Addr(bits / 8)
			}
		}
		return g, true
	}
	return g, false
}

// rtldGlobal returns the address of _rtld_global, which is in the dynamic linker.
func (s *Space) rtldGlobal() (Addr, bool) {
	for _, m := range s.Modules() {
		if m.Main || m.File == nil {
			continue
		}
		if sym := m.File.lookupRaw("_rtld_global"); sym != nil && sym[0].Kind == KindObject {
			return m.Addr(sym[0].Vaddr), true
		}
	}
	return 0, false
}

// field reads a field of the structure at an address.
func (g *glibcLayout) field(at Addr, i int) (Addr, bool) {
	v, ok := g.s.word(at + g.off[i])
	return Addr(v), ok
}

// isMap reports whether a link_map belongs to a module: its first word, l_addr, must be the
// module's bias, and its third, l_ld, the address of its dynamic section.
func (s *Space) isMap(link Addr, m *Module) bool {
	dynamic, ok := m.File.Segment(elf.PT_DYNAMIC)
	bias, ok2 := s.word(link)
	ld, ok3 := s.word(link + 16)
	return ok && ok2 && ok3 && bias == m.Bias && Addr(ld) == m.Addr(dynamic.Vaddr)
}
