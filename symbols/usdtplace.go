package symbols

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// resolveUSDT finds the places of statically defined probes: each note of the name in every
// module that is meant, ordered by module and address.
func (s *Space) resolveUSDT(p Place) ([]Site, error) {
	list, err := s.modulesFor(p.Module)
	if err != nil {
		return nil, err
	}
	var out []Site
	var failed error
	for _, m := range list {
		var here []Site
		notes := m.File.usdt.get(m.File.readUSDT)
		for i := range notes {
			u := &notes[i]
			if !MatchUSDT(p, u) {
				continue
			}
			site, err := s.siteFor(p, m.Addr(u.Vaddr))
			if err != nil {
				failed = err
				continue // it is in a part that isn't mapped any more
			}
			site.Named = u.String()
			site.NameAs(NamedAs{USDT: u, Semaphore: u.Semaphore})
			here = append(here, site)
		}
		slices.SortStableFunc(here, func(x, y Site) int { return cmp.Compare(x.Addr, y.Addr) })
		// If one instruction has two notes of the same name, it is one place.
		out = append(out, slices.CompactFunc(here, func(x, y Site) bool { return x.Addr == y.Addr && x.Named == y.Named })...)
	}
	if len(out) == 0 && failed != nil {
		return nil, failed
	}
	if len(out) == 0 {
		return nil, s.noUSDT(p, list)
	}
	return out, nil
}

// MatchUSDT reports whether a place means a statically defined probe.
func MatchUSDT(p Place, u *USDT) bool {
	match := func(want, have string) bool {
		return want == have || strings.ContainsAny(want, "*?[") && matchPattern(want, have)
	}
	return match(p.Provider, u.Provider) && match(p.Symbol, u.Name)
}

// USDTAt returns the statically defined probe that a place means and that has its no-op at an
// address.
func (s *Space) USDTAt(p Place, a Addr) (u *USDT, ok bool) {
	m := s.ModuleAt(a)
	if m == nil || m.File == nil {
		return u, false
	}
	at := m.File.usdtAt.get(func() map[Vaddr][]*USDT {
		at := map[Vaddr][]*USDT{}
		notes := m.File.usdt.get(m.File.readUSDT)
		for i := range notes {
			at[notes[i].Vaddr] = append(at[notes[i].Vaddr], &notes[i])
		}
		return at
	})
	for _, u := range at[m.Vaddr(a)] {
		if MatchUSDT(p, u) {
			return u, true
		}
	}
	return nil, false
}

// noUSDT makes the error for a statically defined probe that no module has. It lists similar
// names in these modules, or the same name elsewhere.
func (s *Space) noUSDT(p Place, list []*Module) error {
	e := &NotFoundError{What: "%" + p.Provider + ":" + p.Symbol, Kind: "statically defined probe (USDT)", Where: s.String()}
	if p.Module != "" && len(list) > 0 {
		e.Where = list[0].Name
	}
	have := func(modules []*Module, each func(m *Module, u *USDT)) {
		for _, m := range modules {
			notes := m.File.usdt.get(m.File.readUSDT)
			for i := range notes {
				each(m, &notes[i])
			}
		}
	}
	add := func(name string) {
		if len(e.Near) < maxNear && !slices.Contains(e.Near, name) {
			e.Near = append(e.Near, name)
		}
	}
	have(s.Modules(), func(m *Module, u *USDT) {
		if MatchUSDT(p, u) {
			add(m.Name + ":" + u.String())
		}
	})
	dashes := func(name string) string { return strings.ReplaceAll(name, "__", "-") } // as DTrace has it
	var all []string
	byName := map[string][]string{} // of that provider, then of others
	have(list, func(_ *Module, u *USDT) {
		name := u.String()
		if u.Name == p.Symbol || u.Provider == p.Provider && dashes(u.Name) == dashes(p.Symbol) {
			add(name)
		}
		all = append(all, name)
		if u.Provider == p.Provider {
			byName[u.Name] = slices.Insert(byName[u.Name], 0, name)
		} else {
			byName[u.Name] = append(byName[u.Name], name)
		}
	})
	for _, name := range nearest(p.Symbol, slices.Sorted(maps.Keys(byName)), maxNear) {
		for _, u := range byName[name] {
			add(u)
		}
	}
	if slices.Sort(all); len(e.Near) == 0 && len(all) <= 4*maxNear {
		for _, name := range all {
			add(name)
		}
	}
	return e
}

// SymbolFor returns the address of the symbol that an argument of a statically defined probe
// names, as the assembler of the probe's module meant it. If several static variables have the
// name, it is the one in the source file of the function that has the probe.
func (s *Space) SymbolFor(w Site, name string) (Addr, error) {
	p := Place{Module: w.Module.Path, Symbol: name}
	found := slices.DeleteFunc(slices.Clone(w.Module.File.lookupRaw(name)), func(s Symbol) bool { return s.Kind == KindTLS || s.Kind == KindPLT })
	if len(found) == 0 {
		return 0, s.notFound(p, []*Module{w.Module})
	}
	if file := w.Func.Symbol.File; file != "" && len(found) > 1 {
		if same := slices.DeleteFunc(slices.Clone(found), func(s Symbol) bool { return s.File != file }); len(same) > 0 {
			found = same
		}
	}
	sym, err := pick(p, w.Module, found)
	if err != nil {
		return 0, err
	}
	return s.inUse(w.Module, sym), nil
}
