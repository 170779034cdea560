package symbols

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"kprobe/symbols/debuginfo"
)

// Resolve finds what a place means here: one site, or for a glob over names
// one for each function that matches, by module and address; for a statically
// defined probe one for each of its notes.
//
// A name without a module means the function that the process's dynamic
// linking would take: the first module that has one. Its errors are
// *NotFoundError, *AmbiguousError, *NotMappedError, *NotCodeError,
// *OutsideError, *UnboundIFuncError, *LineError and ErrNoDebugInfo. It does not check that
// the place is the start of an instruction.
func (s *Space) Resolve(p Place) ([]Site, error) { return s.resolve(p, false) }

// ResolveAhead is Resolve for a place whose debug information is read next. Where that is compressed, which takes
// long to unpack, ResolveAhead begins with it; the time to look up a symbol is then saved.
func (s *Space) ResolveAhead(p Place) ([]Site, error) { return s.resolve(p, true) }

func (s *Space) resolve(p Place, ahead bool) ([]Site, error) {
	p.Symbol = strings.ReplaceAll(p.Symbol, "(anonymous_namespace)", "(anonymous namespace)") // where no blank can be
	switch p.Kind {
	case PlaceAddr:
		return one(s.siteFor(p, Addr(p.Value)))
	case PlaceVaddr, PlaceOffset:
		return s.resolveNumber(p)
	case PlaceLine:
		return s.resolveLine(p)
	case PlaceSymbol:
		sites, err := s.resolveSymbol(p, ahead)
		if lines, ok := functionLines(p); ok && errors.Is(err, ErrNotMapped) {
			// No file has the name that stands before the colon; a function may.
			if ofFunction, e := s.resolveLine(lines); !errors.Is(e, ErrNoSymbol) {
				return ofFunction, e
			}
		}
		return sites, err
	case PlaceUSDT:
		return s.resolveUSDT(p)
	}
	return nil, fmt.Errorf("find %s: unknown form of a place", p)
}

// functionLines reads MOD:PATTERN as FUNC:LINES. Both have the same form if the pattern matches digits.
func functionLines(p Place) (lines Place, ok bool) {
	if p.Module == "" || p.File != "" || p.Offset != 0 || !strings.ContainsAny(p.Symbol, "*?[") ||
		strings.Trim(p.Symbol, "0123456789*?[]-!^") != "" {
		return p, false
	}
	return Place{Kind: PlaceLine, Symbol: p.Module, Lines: p.Symbol, Return: p.Return}, true
}

func one(site Site, err error) ([]Site, error) {
	if err != nil {
		return nil, err
	}
	return []Site{site}, nil
}

// modulesFor returns the modules in which a place is looked for.
func (s *Space) modulesFor(name string) ([]*Module, error) {
	if name == "" {
		return s.Modules(), nil
	}
	list := s.FindModules(name)
	if list == nil {
		return nil, s.notMapped(name)
	}
	return list, nil
}

// oneModule is modulesFor for what only a name finds, no pattern: addresses as in
// a file, and data.
func (s *Space) oneModule(name string) ([]*Module, error) {
	if name == "" {
		return s.Modules(), nil
	}
	if list := s.FindModule(name); list != nil {
		return list, nil
	}
	return nil, s.notMapped(name)
}

// resolveNumber finds MOD:0xVADDR and PATH:0xOFFSET.
func (s *Space) resolveNumber(p Place) ([]Site, error) {
	list, err := s.oneModule(p.Module)
	if err != nil {
		return nil, err
	}
	var out []Site
	for _, m := range list {
		v := Vaddr(p.Value)
		if p.Kind == PlaceOffset {
			var ok bool
			if v, ok = m.File.OffToVaddr(Off(p.Value)); !ok {
				return nil, &NotCodeError{Place: p.String(), Addr: 0, Lies: "the offset is in no loaded part of " + m.Name}
			}
		}
		site, err := s.siteFor(p, m.Addr(v))
		if err == nil && site.Module != m {
			err = &NotCodeError{Place: p.String(), Addr: m.Addr(v), Lies: "is not in code of " + m.Name}
		}
		if err != nil {
			return nil, err
		}
		if p.RefCtr != 0 {
			semaphore, ok := m.File.OffToVaddr(p.RefCtr)
			if !ok {
				return nil, &NotCodeError{Place: p.String(), Lies: fmt.Sprintf("its reference counter, %#x, is in no loaded part of %s", uint64(p.RefCtr), m.Name)}
			}
			site.NameAs(NamedAs{Semaphore: semaphore})
		}
		out = append(out, site)
	}
	return out, nil
}

func (s *Space) resolveSymbol(p Place, ahead bool) ([]Site, error) {
	list, err := s.modulesFor(p.Module)
	if err != nil {
		return nil, err
	}
	if p.Symbol == "" {
		return nil, s.notFound(p, list)
	}
	if wildModule(p.Module) && len(s.FindModule(p.Module)) == 0 {
		return s.resolveInEach(p, list)
	}
	var data *Module
	var object Symbol
	if ahead && len(list) == 1 {
		list[0].File.expectDebug()
	}
	for i, m := range list {
		found := m.File.lookupIn(p)
		code := slices.DeleteFunc(slices.Clone(found), func(s Symbol) bool { return !s.Kind.Code() })
		if len(code) == 0 {
			if len(found) > 0 && data == nil {
				data, object = m, found[0]
			}
			continue
		}
		if ahead {
			m.File.expectDebug()
		}
		sym, err := pick(p, m, code)
		var several *AmbiguousError
		if errors.As(err, &several) && p.Offset == 0 {
			if list := m.File.structors(several.list, code); len(list) > 0 {
				return s.sitesOf(p, m, list)
			}
		}
		if err != nil {
			s.nameByFile(several, p, m)
			return nil, err
		}
		sites, err := one(s.siteOf(p, m, sym))
		if p.Module == "" {
			return sites, err
		}
		// A file that is named may be loaded more than once (dlmopen).
		for _, again := range list[i+1:] {
			if err == nil && again.Path == m.Path && again.Bias != m.Bias {
				var site Site
				site, err = s.siteOf(p, again, sym)
				sites = append(sites, site)
			}
		}
		if err != nil {
			return nil, err
		}
		return sites, nil
	}
	if p.IsGlob() {
		if sites, err := s.resolveGlob(p, list); sites != nil || err != nil {
			return sites, err
		}
	}
	if sites, err := s.resolveInlined(p, list, true); sites != nil || err != nil {
		return sites, err
	}
	if data != nil {
		if object.Kind == KindTLS { // its value is an offset, no address
			return nil, &NotCodeError{Place: p.String(), Lies: "it is a thread-local variable of " + data.Name + ", and only code can be probed"}
		}
		lies := fmt.Sprintf("is in the data object %s of %s", object.Name, data.Name)
		return nil, &NotCodeError{Place: p.String(), Addr: data.Addr(object.Vaddr), Lies: lies}
	}
	return nil, s.notFound(p, list)
}

// lookupIn looks up SYM, SYM@FILE.c where File is set.
func (f *File) lookupIn(p Place) []Symbol {
	found := f.Lookup(p.Symbol)
	if p.File == "" {
		return found
	}
	if out := slices.DeleteFunc(slices.Clone(found), func(s Symbol) bool { return !sameSource(s.File, p.File) }); len(out) > 0 {
		return out
	}
	if len(found) > 0 && !strings.Contains(p.Symbol, "@") { // SYM@VERSION or SYM@plt was parsed as SYM@FILE
		if out := f.lookupRaw(p.Symbol + "@" + p.File); out != nil {
			return out
		}
	}
	if strings.TrimLeft(p.File, "@") == "plt" {
		return f.lookupRaw(p.Symbol + "@plt")
	}
	return nil
}

// sameSource reports whether a source file's name, as the compiler had it, is
// the one written: whole, or its last elements, or a pattern for either.
func sameSource(have, want string) bool {
	if have == "" {
		return false
	}
	if strings.ContainsAny(want, "*?[") {
		return matchPattern(want, have) || matchPattern(want, lastElements(have, strings.Count(want, "/")+1))
	}
	return have == want || strings.HasSuffix(have, "/"+want) || filepath.Base(have) == want
}

// lastElements is the last n elements of a path.
func lastElements(path string, n int) string {
	at := len(path)
	for ; n > 0 && at >= 0; n-- {
		at = strings.LastIndexByte(path[:at], '/')
	}
	return path[at+1:]
}

// declaredIn reports whether debug information has the function at an address
// declared in a source file.
func (f *File) declaredIn(v Vaddr, file string) (in bool) {
	err := f.ReadDebug(func(d *debuginfo.Data) error {
		if e, ok := d.FuncAt(uint64(v)); ok {
			have, _ := declared(&e)
			in = sameSource(have, file)
		}
		return nil
	})
	return in && err == nil
}

// nameByFile sets the source file of the candidates that only an address tells from
// the others, as debug information has it, if SYM@FILE.c then means that function
// alone, with its inlined instances.
func (s *Space) nameByFile(e *AmbiguousError, p Place, m *Module) {
	if e == nil || p.File != "" {
		return
	}
	for i, sym := range e.list {
		c := &e.Candidates[i]
		if c.Text != m.Name+":"+sym.Vaddr.String() {
			continue
		}
		file := ""
		if err := m.File.ReadDebug(func(d *debuginfo.Data) error {
			if fn, ok := d.FuncAt(uint64(sym.Vaddr)); ok {
				file, _ = declared(&fn)
			}
			return nil
		}); err != nil || file == "" {
			continue
		}
		for n := range 2 {
			with := Place{Symbol: sym.Name, File: lastElements(file, n+1), Module: p.Module}
			sites, err := s.Resolve(with)
			sites = slices.DeleteFunc(sites, func(at Site) bool { return at.NamedAs().Inlined != "" })
			if err == nil && len(sites) == 1 && sites[0].Addr == m.Addr(sym.Vaddr) {
				c.Text, c.Note = with.String(), sym.Vaddr.String()
				break
			}
		}
	}
}

// sitesOf makes the sites of several symbols.
func (s *Space) sitesOf(p Place, m *Module, list []Symbol) ([]Site, error) {
	var out []Site
	for _, sym := range list {
		site, err := s.siteOf(p, m, sym)
		if err != nil {
			return nil, err
		}
		out = append(out, site)
	}
	return out, nil
}

// siteOf makes the site of a symbol and the place's offset.
func (s *Space) siteOf(p Place, m *Module, sym Symbol) (Site, error) {
	a := m.Addr(sym.Vaddr)
	if sym.Kind == KindIFunc {
		var err error
		if a, err = s.implementation(m, sym); err != nil {
			return Site{}, err
		}
		if found := s.ModuleAt(a); found != nil {
			m = found
		}
	}
	start, err := s.siteFor(p, a)
	if err != nil {
		return Site{}, err
	}
	if p.Offset == 0 && start.Offset == 0 && start.Func.Symbol.Name == sym.Name {
		return start, nil
	}
	name := sym.Demangled()
	if p.Offset == 0 {
		start.Named = name
		return start, nil
	}
	at := a + Addr(p.Offset)
	site, err := s.siteFor(p, at)
	inside := err == nil && site.Module == start.Module && p.Offset > 0 &&
		(site.Func.Start == start.Func.Start || site.Func.Start == 0 || start.Func.End == 0)
	if !inside {
		e := &OutsideError{Name: name, Offset: p.Offset, Size: start.Func.Size()}
		if err == nil {
			e.Lands = site.Name()
		}
		return Site{}, e
	}
	site.Named = OffsetName(name, uint64(p.Offset))
	return site, nil
}
