package symbols

import (
	"debug/elf"
	"slices"
)

// Data finds a symbol as @SYM and @MOD:SYM mean it: its address in the process
// and its size in bytes (0 is unknown). An empty module means any, in the
// order of dynamic linking. Data objects are preferred to functions. A
// variable of a library of which the program has a copy (R_X86_64_COPY) is the
// program's: that is the one in use. Its errors are *NotFoundError,
// *AmbiguousError, *NotMappedError, and *NotCodeError never.
func (s *Space) Data(module, symbol string) (Addr, uint64, error) {
	list, err := s.modulesFor(module)
	if err != nil {
		return 0, 0, err
	}
	return s.dataIn(list, Place{Module: module, Symbol: symbol})
}

func (s *Space) dataIn(list []*Module, p Place) (Addr, uint64, error) {
	for _, wantData := range [...]bool{true, false} {
		for _, m := range list {
			found := slices.DeleteFunc(slices.Clone(m.File.Lookup(p.Symbol)), func(s Symbol) bool {
				return s.Kind == KindTLS || s.Kind == KindPLT || (s.Kind == KindObject) != wantData
			})
			if len(found) == 0 {
				continue
			}
			sym, err := pick(p, m, found)
			if err != nil {
				return 0, 0, err
			}
			if a, ok := s.copied(m, sym); ok {
				return a, sym.Size, nil
			}
			return m.Addr(sym.Vaddr), sym.Size, nil
		}
	}
	return 0, 0, s.notFound(p, list)
}

// copied finds the program's copy of a library's variable.
func (s *Space) copied(m *Module, sym Symbol) (Addr, bool) {
	if m.Main || sym.Binding == Local || sym.Kind != KindObject {
		return 0, false
	}
	for _, main := range s.Modules() {
		if !main.Main {
			continue
		}
		for _, r := range main.File.relocations() {
			if r.typ == elf.R_X86_64_COPY && r.name == sym.Name {
				return main.Addr(r.slot), true
			}
		}
	}
	return 0, false
}

// DataAt names the data object that holds an address: its name, and how far from its
// start the address is, in bytes.
func (s *Space) DataAt(a Addr) (name string, off uint64, m *Module, ok bool) {
	m = s.ModuleAt(a)
	if m == nil || m.File == nil {
		return "", 0, m, false
	}
	sym, ok := m.File.dataAt(m.Vaddr(a))
	if !ok {
		return "", 0, m, false
	}
	return sym.Demangled(), uint64(m.Vaddr(a) - sym.Vaddr), m, true
}
