package symbols

import (
	"cmp"
	"debug/dwarf"
	"path/filepath"
	"slices"
	"strings"

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
			part bool
		}
		var found []instance
		var functions []string // those of C++ that have code here
		want := ""
		if hasParams(p.Symbol) {
			want = signature(p.Symbol)
		}
		err := m.File.ReadDebug(func(d *debuginfo.Data) error {
			for _, fn := range d.FindFunctions(p.Symbol) {
				if p.File != "" {
					if file, _ := declared(&fn); !sameSource(file, p.File) {
						continue
					}
				}
				is := ""
				link := fn.LinkageName()
				if link == "" { // a static function
					for _, e := range d.Bodies(fn) {
						if at, ok := e.EntryPC(); ok {
							at, _ := m.File.FuncAt(Vaddr(at))
							link = at.Symbol.Name
							break
						}
					}
				}
				if strings.HasPrefix(link, "_Z") && rustHash(link) == "" {
					base, _ := cutClone(link)
					if is = signature(demangleName(base)); want != "" && is != want && p.Symbol != link {
						continue
					}
				}
				before := len(found)
				for _, e := range d.Bodies(fn) {
					if at, ok := e.EntryPC(); ok && bodies {
						found = append(found, instance{at: at, part: m.File.isPart(Vaddr(at))})
					}
				}
				name := fn.QualifiedName()
				for _, e := range d.Instances(fn) {
					if at, ok := e.EntryPC(); ok && !p.Return && !splitOff(&e) {
						found = append(found, instance{at: at, e: e.Ref(), name: name})
					}
				}
				if len(found) > before && is != "" && !slices.Contains(functions, is) {
					functions = append(functions, is)
				}
			}
			return nil
		})
		if err != nil {
			continue
		}
		if bodies && len(functions) > 1 {
			e := &AmbiguousError{Name: p.Symbol}
			for _, name := range functions {
				e.Candidates = append(e.Candidates, Candidate{Text: name})
			}
			return nil, e
		}
		if slices.ContainsFunc(found, func(in instance) bool { return in.name != "" }) {
			// What was split off is reached from the instances: a call would count twice.
			found = slices.DeleteFunc(found, func(in instance) bool { return in.part })
		}
		slices.SortStableFunc(found, func(x, y instance) int { return cmp.Compare(x.at, y.at) })
		found = slices.CompactFunc(found, func(x, y instance) bool { return x.at == y.at })
		for _, in := range found {
			site, err := s.siteFor(p, m.Addr(Vaddr(in.at)))
			if err != nil {
				continue // code that the linker left out
			}
			if in.name != "" {
				site.NameAs(NamedAs{Inlined: in.name, Entry: in.e})
			}
			out = append(out, site)
		}
		if out != nil && p.Module == "" {
			return out, nil
		}
	}
	return out, nil
}

// splitOff reports an instance of a part that GCC split off a function and put
// back: it is called from where the function is declared, where no source has a
// call.
func splitOff(e *debuginfo.Entry) bool {
	for _, a := range [][2]dwarf.Attr{{dwarf.AttrCallLine, dwarf.AttrDeclLine}, {dwarf.AttrCallColumn, dwarf.AttrDeclColumn}} {
		call, ok := e.Int(a[0])
		v, _, ok2 := e.Chased(a[1])
		if decl, isInt := v.Int(); !ok || !ok2 || !isInt || call != decl {
			return false
		}
	}
	return true
}

// isPart reports whether a function is a part of another that GCC split off,
// to inline what is before it.
func (f *File) isPart(v Vaddr) bool {
	fn, ok := f.FuncAt(v)
	if !ok || fn.Start != v {
		return false
	}
	_, suffix := cutClone(fn.Symbol.Name)
	return strings.Contains(suffix, ".part.")
}

// baseName is the last element of a path, and "" of none.
func baseName(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(path)
}
