package symbols

import (
	"debug/elf"
	"fmt"
)

// implementation finds what an IFUNC symbol means in this process: the address
// that the dynamic linker, having called the resolver, wrote into a slot of
// any module. It fails with *UnboundIFuncError where no slot is filled yet.
func (s *Space) implementation(m *Module, sym Symbol) (Addr, error) {
	for _, user := range s.Modules() {
		for _, r := range user.File.relocations() {
			switch r.typ {
			case elf.R_X86_64_IRELATIVE:
				if user != m || r.addend != sym.Vaddr {
					continue
				}
			case elf.R_X86_64_JMP_SLOT, elf.R_X86_64_GLOB_DAT, elf.R_X86_64_64:
				if r.name != sym.Name || r.addend != 0 && r.typ == elf.R_X86_64_64 {
					continue
				}
			default:
				continue
			}
			v, ok := s.word(user.Addr(r.slot))
			if !ok {
				continue
			}
			if o := s.ModuleAt(Addr(v)); o != nil && (o == m || o.Name == "[vdso]") && o.implements(Addr(v), m.Addr(sym.Vaddr)) {
				return Addr(v), nil
			}
		}
	}
	return 0, &UnboundIFuncError{Symbol: sym, Module: m, Resolver: m.Addr(sym.Vaddr)}
}

// implements reports whether a slot's value can be an implementation: the start
// of code that is neither the resolver nor a stub. Implementations are in the
// resolver's file, or in the vdso (time, gettimeofday). A slot that is not
// bound yet points to a stub of its own module, and one that is bound to
// another module's function of the same name points there.
func (m *Module) implements(a, resolver Addr) bool {
	v := m.Vaddr(a)
	if a == resolver || !m.File.Executable(v) || m.File.inPLT(v) {
		return false
	}
	fn, ok := m.File.FuncAt(v)
	return !ok || fn.Start == v || fn.Symbol.Kind == KindFDE
}

// IFuncSite makes the place of an IFUNC symbol's implementation, after the
// caller learned its address by calling the resolver of an
// *UnboundIFuncError. Its errors are *NotCodeError.
func (s *Space) IFuncSite(e *UnboundIFuncError, implementation Addr) (Site, error) {
	site, not := s.siteAt(implementation)
	if not != nil {
		not.Place = fmt.Sprintf("the implementation of %s", e.Symbol.Name)
		return Site{}, not
	}
	site.Named = e.Symbol.Demangled()
	return site, nil
}
