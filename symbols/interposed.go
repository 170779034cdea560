package symbols

// Interposed returns the module whose function of a place's name the program's
// dynamic linking takes instead of that of the place's module: the first in the
// order of lookup that exports the name, where that is another one (ld.so(8),
// LD_PRELOAD; an allocator that a program is linked with). It is nil where there
// is none, and for places that name no module and one function. What libraries
// are linked to in ways of their own (RTLD_DEEPBIND, dlmopen, -Bsymbolic) isn't
// known.
func (s *Space) Interposed(p Place) *Module {
	if p.Kind != PlaceSymbol || p.Module == "" || p.Symbol == "" || p.File != "" || p.IsGlob() {
		return nil
	}
	list := s.FindModule(p.Module)
	if len(list) == 0 || !list[0].exports(p.Symbol) {
		return nil
	}
	for _, m := range s.Modules() {
		switch {
		case m == list[0]:
			return nil
		case m.exports(p.Symbol):
			return m
		}
	}
	return nil
}

// exports reports whether other modules may be linked to a function of the name.
func (m *Module) exports(name string) bool {
	for _, sym := range m.File.Lookup(name) {
		if sym.Binding != Local && (sym.Kind == KindFunc || sym.Kind == KindIFunc) {
			return true
		}
	}
	return false
}
