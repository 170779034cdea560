package symbols

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"

	"kprobe/symbols/debuginfo"
)

// LineCode is a source line that has code.
type LineCode struct {
	File string
	Line int
	Addr Addr // the first of the line's
}

// Lines lists the lines of the function at a site, in its own file, that have
// code, by line; what was inlined into it is left out. first is the line where
// the function's name is, which FUNC:LINE counts from, and file is where.
func (s *Space) Lines(site Site) (list []LineCode, file string, first int, err error) {
	if site.Module == nil {
		return nil, "", 0, fmt.Errorf("lines of %s: %w", site.Name(), ErrNoDebugInfo)
	}
	err = site.Module.File.ReadDebug(func(d *debuginfo.Data) error {
		e, ok := entryOf(d, site)
		if !ok {
			return fmt.Errorf("lines of %s: %w", site.Name(), ErrNoDebugInfo)
		}
		t := e.Unit().Lines()
		if t == nil {
			return fmt.Errorf("lines of %s: %w", site.Name(), ErrNoDebugInfo)
		}
		file, first = declared(&e)
		if row, ok := t.At(uint64(site.Vaddr)); ok && file == "" {
			file, first = t.File(row), int(row.Line) // of what no source declares
		}
		in, at := e.Ranges(), map[int]uint64{}
		for _, r := range t.Rows {
			if r.End || !r.Stmt || r.Line == 0 || !covered(in, r.Addr) || t.File(r) != file || !ownCode(&e, r.Addr, file, int(r.Line)) {
				continue
			}
			if have, ok := at[int(r.Line)]; !ok || r.Addr < have {
				at[int(r.Line)] = r.Addr
			}
		}
		list = site.Module.lineCodes(file, at)
		return nil
	})
	if t := site.Module.File.goLineTable(); t != nil && errors.Is(err, ErrNoDebugInfo) {
		if fn, ok := t.functionAt(site.Vaddr); ok {
			var at map[int]uint64
			file, first, at = t.ownLines(&fn)
			return site.Module.lineCodes(file, at), file, first, nil
		}
	}
	return list, file, first, err
}

// ownCode reports whether a row of the line table is the function's own, and not
// that of something inlined into it. Where an inlined call begins, the call's line
// has a row at the address of the callee's: that is the caller's.
func ownCode(fn *debuginfo.Entry, pc uint64, file string, line int) bool {
	scopes := slices.DeleteFunc(fn.Unit().Scopes(pc), func(e debuginfo.Entry) bool {
		return e.Tag() != dwarf.TagInlinedSubroutine && e.Tag() != dwarf.TagSubprogram
	})
	for i := len(scopes) - 1; i >= 0; i-- {
		own := scopes[i].Ref() == fn.Ref()
		if i == 0 || scopes[i].Tag() == dwarf.TagSubprogram || !isCall(&scopes[i], file, line) {
			return own
		}
		if _, first := declared(fn); own && line == first {
			return true // all on one line
		}
	}
	return true
}

// isCall reports whether an inlined call is on a line.
func isCall(e *debuginfo.Entry, file string, line int) bool {
	n, ok := e.Int(dwarf.AttrCallLine)
	at, _ := e.Int(dwarf.AttrCallFile)
	return ok && int(n) == line && e.Unit().FileOf(at) == file
}

func (m *Module) lineCodes(file string, at map[int]uint64) []LineCode {
	list := make([]LineCode, 0, len(at))
	for line, v := range at {
		list = append(list, LineCode{file, line, m.Addr(Vaddr(v))})
	}
	slices.SortFunc(list, func(x, y LineCode) int { return cmp.Compare(x.Line, y.Line) })
	return list
}

// FileLines lists the lines of a source file that have code in a module, by
// line. name is the file as FILE:LINE has it; file is its whole name. Several
// files of one last name are an error that lists them.
func (s *Space) FileLines(module, name string) (list []LineCode, file string, err error) {
	modules, err := s.modulesFor(module)
	if err != nil {
		return nil, "", err
	}
	var blind error
	for _, m := range modules {
		at := map[int]uint64{}
		err := m.File.ReadDebug(func(d *debuginfo.Data) error {
			for _, u := range d.Units() {
				if !slices.ContainsFunc(u.Files(), func(f string) bool { return sameSource(f, name) }) {
					continue
				}
				t := u.Lines()
				if t == nil {
					continue
				}
				for _, r := range t.Rows {
					have := t.File(r)
					if r.End || !r.Stmt || r.Line == 0 || !sameSource(have, name) {
						continue
					}
					if file == "" {
						file = have
					}
					if have != file {
						return severalFiles(name, file, have)
					}
					if a, ok := at[int(r.Line)]; !ok || r.Addr < a {
						at[int(r.Line)] = r.Addr
					}
				}
			}
			return nil
		})
		if t := m.File.goLineTable(); t != nil && errors.Is(err, ErrNoDebugInfo) {
			var of string
			if of, err = t.fileLines(name, at); of != "" {
				file = of
			}
		}
		switch {
		case errors.Is(err, ErrNoDebugInfo):
			blind = cmp.Or(blind, fmt.Errorf("%s: %w", m.Name, err))
		case err != nil:
			return nil, "", err
		}
		if len(at) > 0 {
			return m.lineCodes(file, at), file, nil
		}
	}
	if blind != nil {
		return nil, "", blind
	}
	return nil, "", s.noSource(Place{Kind: PlaceLine, Module: module, File: name}, modules)
}

func severalFiles(name, one, another string) error {
	return fmt.Errorf("%s is %s and %s: write more of its path", name, one, another)
}
