package symbols

import "slices"

// Data finds a symbol as @SYM and @MOD:SYM mean it: its address in the process
// and its size in bytes (0 is unknown). An empty module means any, in the
// order of dynamic linking. Data objects are preferred to functions. A variable of a
// library in whose place the program uses another is that one (Preempted). Its errors
// are *NotFoundError, *AmbiguousError, *NotMappedError, and *NotCodeError never.
func (s *Space) Data(module, symbol string) (Addr, uint64, error) {
	list, err := s.oneModule(module)
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
			return s.inUse(m, sym), sym.Size, nil
		}
	}
	return 0, 0, s.notFound(p, list)
}

// inUse is where the program has a module's symbol: another variable may have taken its place.
func (s *Space) inUse(m *Module, sym Symbol) Addr {
	if sym.Kind == KindObject && sym.Binding != Local {
		p, ok := s.Preempted(m, sym.Vaddr)
		if ok && p.Slot != 0 {
			p.At, ok = s.ofProgram(m, exportedAt(m.File.exportedData(), sym.Vaddr))
		}
		if ok {
			return p.At
		}
	}
	return m.Addr(sym.Vaddr)
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
