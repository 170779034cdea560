package symbols

import (
	"fmt"

	"kprobe/symbols/debuginfo"
)

// Site is a probe place as found in a process or file. It is small, because a session may keep hundreds of
// thousands: what the sites of a function have in common they share, and what few have is apart.
type Site struct {
	Addr   Addr
	Module *Module // nil for code that is in no file, such as a JIT compiler's
	Vaddr  Vaddr   // of Addr in the module's file; 0 without one
	// Func is the function around it, which must not be changed. It is zero where no function is known,
	// and nil in the zero Site only.
	Func   *Func
	Offset uint64 // from the start of Func, in bytes
	// Named is what Name returns, if that isn't the function's readable name and the offset; "": it is.
	Named string
	as    *NamedAs // nil: nothing
}

// NamedAs is what is known of a site by how it was named, besides its address. Most sites have none of it.
type NamedAs struct {
	// Inlined is the name of the function whose inlined instance the place is
	// the start of, or "" where it is none. Site.Func is then the function that it
	// was inlined into.
	Inlined string
	// Entry is the debug information's entry of the inlined instance, or of the
	// function or inlined instance that has the line that the place was named by;
	// zero where neither is known.
	Entry debuginfo.Ref
	// USDT is the statically defined probe whose no-op the place is, where it was
	// named by that; nil: it wasn't.
	USDT *USDT
	// Semaphore is a counter of 16 bits in the module's data that is to be raised
	// while the place is probed: of USDT, or the REFCTR of PlaceOffset. 0 is none.
	Semaphore Vaddr
}

// siteFor makes the site of an address, which must be in code. p is what the user wrote, for errors.
func (s *Space) siteFor(p Place, a Addr) (Site, error) {
	site, e := s.siteAt(a)
	if e != nil {
		e.Place = p.String()
		return Site{}, e
	}
	return site, nil
}

// siteAt is siteFor for a place that has no name yet.
func (s *Space) siteAt(a Addr) (Site, *NotCodeError) {
	v := s.now.Load()
	m := v.moduleAt(a)
	mapping, mapped := s.MappingAt(a)
	if !mapped || !mapping.Exec || mapping.Path == "[vsyscall]" {
		return Site{}, &NotCodeError{Addr: a, Lies: s.lies(a, m, mapping, mapped)}
	}
	site := Site{Addr: a, Module: m, Func: new(Func)}
	if m == nil {
		return site, nil
	}
	site.Vaddr = m.Vaddr(a)
	if !m.File.Executable(site.Vaddr) {
		return Site{}, &NotCodeError{Addr: a, Lies: s.lies(a, m, mapping, mapped)}
	}
	if fn, ok := m.File.FuncAt(site.Vaddr); ok {
		*site.Func, site.Offset = fn, uint64(site.Vaddr-fn.Start)
	}
	return site, nil
}

// Name is how to print the place, and is accepted as a place: SYM, SYM+0xOFF, or 0xADDR. To make it readable
// takes a microsecond and more, so sites don't have it beforehand: there may be thousands.
func (w Site) Name() string {
	switch {
	case w.Named != "":
		return w.Named
	case w.Func == nil || w.Func.Symbol.Name == "":
		return w.Addr.String()
	}
	return OffsetName(w.FuncName(), w.Offset)
}

// NamedAs is what is known of the site by how it was named.
func (w *Site) NamedAs() NamedAs {
	if w.as == nil {
		return NamedAs{}
	}
	return *w.as
}

// NameAs sets what is known of the site by how it was named.
func (w *Site) NameAs(as NamedAs) {
	if w.as = nil; as != (NamedAs{}) {
		w.as = &as
	}
}

// FuncName is the readable name of the site's function.
func (w *Site) FuncName() string { return w.Func.Symbol.Demangled() }

// OffsetName is SYM, or SYM+0xOFF inside it, as Site.Name returns it.
func OffsetName(name string, off uint64) string {
	if off == 0 {
		return name
	}
	return fmt.Sprintf("%s+%#x", name, off)
}

// lies says what is at an address that is not code.
func (s *Space) lies(a Addr, m *Module, mapping Mapping, mapped bool) string {
	switch {
	case !mapped && s.pid == 0:
		return "is not in the file"
	case !mapped:
		return "is not mapped"
	case mapping.Path == "[vsyscall]":
		return "is the vsyscall page, which the kernel runs itself"
	case m != nil:
		if sym, ok := m.File.dataAt(m.Vaddr(a)); ok {
			return fmt.Sprintf("is in the data object %s of %s", sym.Name, m.Name)
		}
		if sec := m.File.Section(m.Vaddr(a)); sec != "" {
			return fmt.Sprintf("is in section %s of %s", sec, m.Name)
		}
		return "is in data of " + m.Name
	case mapping.Path != "":
		return "is in " + mapping.Path + " (" + mapping.Perms() + ")"
	}
	return "is in anonymous memory (" + mapping.Perms() + ")"
}

// dataAt finds the data object that holds the address, by a walk through the
// tables: it is asked for messages alone.
func (f *File) dataAt(v Vaddr) (Symbol, bool) {
	for _, t := range f.tables().list {
		for i := range t.symbols {
			s := &t.symbols[i]
			if s.named() && v >= s.vaddr && (v == s.vaddr || uint64(v-s.vaddr) < s.size) {
				if sym := f.symbol(t, s); sym.Kind == KindObject {
					return sym, true
				}
			}
		}
	}
	return Symbol{}, false
}
