package symbols

import (
	"cmp"
	"path/filepath"
	"slices"

	"kprobe/symbols/debuginfo"
)

// Inlined finds the places where a function was inlined, by module and
// address: the first instruction of each instance. p is a name, without or
// with a file (SYM@FILE.c). None is no error. Files without debug information,
// or with damaged one, have none.
func (s *Space) Inlined(p Place) ([]Site, error) {
	list, err := s.modulesFor(p.Module)
	if err != nil {
		return nil, err
	}
	return s.resolveInlined(p, list, false)
}

// resolveInlined finds the instances in some modules, and with bodies the code
// of functions that no symbol has by that name: clones. The name has no
// offset: instances of one function differ. Only code of its own returns.
func (s *Space) resolveInlined(p Place, list []*Module, bodies bool) ([]Site, error) {
	if p.Offset != 0 || p.IsGlob() {
		return nil, nil
	}
	var out []Site
	for _, m := range list {
		type instance struct {
			at   uint64
			e    debuginfo.Ref
			name string
		}
		var found []instance
		err := m.File.ReadDebug(func(d *debuginfo.Data) error {
			for _, fn := range d.FindFunctions(p.Symbol) {
				if file, _ := declared(&fn); p.File != "" && !sameSource(file, p.File) {
					continue
				}
				for _, e := range d.Bodies(fn) {
					if at, ok := e.EntryPC(); ok && bodies {
						found = append(found, instance{at: at})
					}
				}
				name := fn.QualifiedName()
				for _, e := range d.Instances(fn) {
					if at, ok := e.EntryPC(); ok && !p.Return {
						found = append(found, instance{at, e.Ref(), name})
					}
				}
			}
			return nil
		})
		if err != nil {
			continue
		}
		slices.SortStableFunc(found, func(x, y instance) int { return cmp.Compare(x.at, y.at) })
		found = slices.CompactFunc(found, func(x, y instance) bool { return x.at == y.at })
		for _, in := range found {
			site, err := s.siteAt(m.Addr(Vaddr(in.at)), p.String())
			if err != nil {
				continue // code that the linker left out
			}
			if in.name != "" {
				site.Inlined, site.Entry = in.name, in.e
			}
			out = append(out, site)
		}
		if out != nil && p.Module == "" {
			return out, nil
		}
	}
	return out, nil
}

// baseName is the last element of a path, and "" of none.
func baseName(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(path)
}
