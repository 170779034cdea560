package symbols

import (
	"cmp"
	"debug/elf"
	"slices"
)

// Preempted is the variable that the program uses in place of one of a library: of all
// modules that export a name, dynamic linking takes the first.
type Preempted struct {
	At Addr
	// Slot, if it isn't 0, is the word in which the dynamic linker puts the variable's
	// address; At counts from there. The library isn't relocated yet.
	Slot Addr
}

// Preempted finds what is in use for a variable, or a part of one, that a library's file has
// at an address: the program's copy (R_X86_64_COPY), or what another module has of the same
// name, as of C++'s inline variables. ok is false if the library's own is in use.
func (s *Space) Preempted(m *Module, v Vaddr) (p Preempted, ok bool) {
	if m.Main || m.File == nil {
		return p, false
	}
	sym := exportedAt(m.File.exportedData(), v)
	if sym == nil {
		return p, false
	}
	off := Addr(v - sym.at)
	if sym.slot == 0 || s.pid == 0 { // no code of the library's asks where it is
		at, ok := s.ofProgram(m, sym)
		return Preempted{At: at + off}, ok
	}
	slot := m.Addr(sym.slot)
	at, ok := s.word(slot)
	if !ok || at == 0 {
		return Preempted{At: off, Slot: slot}, true
	}
	return Preempted{At: Addr(at) + off}, Addr(at) != m.Addr(sym.at)
}

// ofProgram finds the program's variable of the name of a library's: it is the first in the
// order of lookup.
func (s *Space) ofProgram(m *Module, sym *exportedData) (Addr, bool) {
	if sym.protected || m.File.isSymbolic() {
		return 0, false
	}
	for _, main := range s.Modules() {
		if !main.Main || main.File == nil {
			continue
		}
		list := main.File.exportedData()
		if i := slices.IndexFunc(list, func(d exportedData) bool { return d.name == sym.name }); i >= 0 {
			return main.Addr(list[i].at), true
		}
	}
	return 0, false
}

// Linked is where the code of a module finds a variable that it doesn't define: the word in
// which the dynamic linker puts its address, or a copy of the module's own.
func (s *Space) Linked(m *Module, name string) (p Preempted, ok bool) {
	if m.File == nil || s.pid == 0 {
		return p, false
	}
	for _, r := range m.File.relocations() {
		if r.typ != elf.R_X86_64_GLOB_DAT || r.name != name || r.addend != 0 {
			continue
		}
		if at, ok := s.word(m.Addr(r.slot)); ok && at != 0 {
			return Preempted{At: Addr(at)}, true
		}
		return Preempted{Slot: m.Addr(r.slot)}, true
	}
	for _, sym := range m.File.Lookup(name) {
		if sym.Kind == KindObject && sym.Binding != Local {
			if p, ok := s.Preempted(m, sym.Vaddr); ok {
				return p, true
			}
			return Preempted{At: m.Addr(sym.Vaddr)}, true
		}
	}
	return p, false
}

// exportedData is a variable that a file exports.
type exportedData struct {
	name      string
	at        Vaddr
	size      uint64
	slot      Vaddr // where dynamic linking puts the address of the one in use; 0: nowhere
	protected bool
}

// exportedData lists the variables that a file exports, by address; of several names of one
// the first is that by which the file's code asks for it.
func (f *File) exportedData() []exportedData {
	return f.exported.get(func() (out []exportedData) {
		var err error
		defer rescue(f.Path, &err)
		slots := map[string]Vaddr{}
		for _, r := range f.relocations() {
			if r.typ == elf.R_X86_64_GLOB_DAT && r.name != "" && r.addend == 0 {
				slots[r.name] = r.slot
			}
		}
		t := f.tables().dyn
		if t == nil {
			return nil
		}
		for i := range t.symbols {
			s := &t.symbols[i]
			if typ := s.typ(); !s.defined() || typ != elf.STT_OBJECT && typ != elf.STT_COMMON || elf.ST_BIND(s.info) == elf.STB_LOCAL {
				continue
			}
			name := t.name(s)
			out = append(out, exportedData{name: name, at: s.vaddr, size: s.size, slot: slots[name], protected: s.protected})
		}
		slices.SortStableFunc(out, func(x, y exportedData) int {
			return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(y.slot, x.slot))
		})
		return out
	})
}

// exportedAt finds the variable that holds an address.
func exportedAt(list []exportedData, v Vaddr) *exportedData {
	i, exact := slices.BinarySearchFunc(list, v, func(d exportedData, v Vaddr) int { return cmp.Compare(d.at, v) })
	if exact {
		return &list[i]
	}
	if i == 0 {
		return nil
	}
	i, _ = slices.BinarySearchFunc(list, list[i-1].at, func(d exportedData, v Vaddr) int { return cmp.Compare(d.at, v) })
	if d := &list[i]; uint64(v-d.at) < d.size {
		return d
	}
	return nil
}

// isSymbolic reports a library that takes its own variables first.
func (f *File) isSymbolic() bool {
	_, ok := f.dyn[elf.DT_SYMBOLIC]
	return ok || elf.DynFlag(f.dyn[elf.DT_FLAGS])&elf.DF_SYMBOLIC != 0
}
