package symbols

import "debug/elf"

// PreemptedTLS finds what is in use for a thread-local variable, or a part of one, that a
// library's file has at an offset in its block: what another module, in, has of the same name, as
// of C++'s inline variables, at the offset at. ok is false if the library's own is in use.
func (s *Space) PreemptedTLS(m *Module, off uint64) (in *Module, at uint64, ok bool) {
	if m.Main || m.File == nil {
		return nil, 0, false
	}
	sym := m.File.exportedTLS(func(d exportedData) bool {
		return uint64(d.at) <= off && (off-uint64(d.at) < d.size || uint64(d.at) == off)
	})
	if sym == nil || sym.protected {
		return nil, 0, false
	}
	slot, asked := m.File.slotTLS(sym.name)
	if !asked && m.File.isSymbolic() { // no code of the library's asks by the name which is in use
		return nil, 0, false
	}
	for _, x := range s.Modules() {
		if x == m {
			return nil, 0, false
		}
		if x.File == nil {
			continue
		}
		other := x.File.exportedTLS(func(d exportedData) bool { return d.name == sym.name })
		if other == nil {
			continue
		}
		if own, known := s.ownTLS(m, slot, asked); known && own {
			return nil, 0, false // as of a library that is loaded for itself (RTLD_LOCAL)
		}
		return x, uint64(other.at) + off - uint64(sym.at), true
	}
	return nil, 0, false
}

// exportedTLS finds a thread-local variable that a file exports. Addresses are offsets in its
// block.
func (f *File) exportedTLS(is func(exportedData) bool) *exportedData {
	var err error
	defer rescue(f.Path, &err)
	t := f.tables().dyn
	if t == nil {
		return nil
	}
	for i := range t.symbols {
		s := &t.symbols[i]
		if s.typ() != elf.STT_TLS || !s.defined() || elf.ST_BIND(s.info) == elf.STB_LOCAL {
			continue
		}
		if d := (exportedData{name: t.name(s), at: s.vaddr, size: s.size, protected: s.protected}); is(d) {
			return &d
		}
	}
	return nil
}

// slotTLS finds where dynamic linking writes, for a file's code, in which module's block a
// variable of a name is (R_X86_64_DTPMOD64).
func (f *File) slotTLS(name string) (slot Vaddr, asked bool) {
	for _, r := range f.relocations() {
		if r.name != name {
			continue
		}
		switch r.typ {
		case elf.R_X86_64_DTPMOD64:
			return r.slot, true
		case elf.R_X86_64_TPOFF64, elf.R_X86_64_TLSDESC:
			asked = true
		}
	}
	return 0, asked
}

// ownTLS reports whether dynamic linking has given a library its own variable.
func (s *Space) ownTLS(m *Module, slot Vaddr, asked bool) (own, known bool) {
	if slot == 0 || !asked || s.pid == 0 {
		return false, false
	}
	id, ok := s.word(m.Addr(slot))
	block, err := s.TLS(m)
	if !ok || id == 0 || err != nil || block.Module == 0 {
		return false, false
	}
	return block.Module == id, true
}
