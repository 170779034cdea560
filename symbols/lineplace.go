package symbols

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"kprobe/symbols/debuginfo"
)

// resolveLine finds FILE.c:LINE and FUNC:LINE: the first address of the line, or
// of each line that a glob matches, in each function, and in each inlined
// instance of one, that has code of it.
func (s *Space) resolveLine(p Place) ([]Site, error) {
	list, err := s.modulesFor(p.Module)
	if err != nil {
		return nil, err
	}
	if p.File == "" {
		return s.resolveFuncLine(p, list)
	}
	var out []Site
	missing := &LineError{File: p.File, Line: p.Line, Lines: p.Lines}
	known := false
	var blind error // of the first module, where it has no debug information
	for i, m := range list {
		if !m.File.mayHaveSource(baseWithoutPattern(p.File)) {
			continue
		}
		var at []lineStart
		err := m.File.ReadDebug(func(d *debuginfo.Data) error {
			search := lineSearch{d: d, line: p.Line, glob: p.Lines, match: func(f string) bool { return sameSource(f, p.File) }}
			search.units(d.UnitsOf(baseWithoutPattern(p.File)))
			at = search.places()
			known = known || search.known
			missing.near(search.before, search.after)
			return nil
		})
		if t := m.File.goLineTable(); t != nil && errors.Is(err, ErrNoDebugInfo) {
			search := lineSearch{line: p.Line, glob: p.Lines, match: func(f string) bool { return sameSource(f, p.File) }}
			at, err = search.goFile(t), nil
			known = known || search.known
			missing.near(search.before, search.after)
		}
		switch {
		case errors.Is(err, ErrNoDebugInfo):
			if i == 0 {
				blind = err
			}
		case err != nil:
			return nil, err
		}
		sites, err := s.lineSites(m, at, p)
		if err != nil {
			return nil, err
		}
		out = append(out, sites...)
	}
	switch {
	case out != nil:
		return out, nil
	case !known && blind != nil:
		return nil, fmt.Errorf("find %s: %w", p, blind)
	case !known:
		return nil, s.noSource(p, list)
	}
	return nil, missing
}

// baseWithoutPattern is the last element of a source file's name as written, ""
// of a pattern: all files that sameSource takes for it have that element.
func baseWithoutPattern(file string) string {
	if strings.ContainsAny(file, "*?[") {
		return ""
	}
	return file[strings.LastIndexByte(file, '/')+1:]
}

// near keeps the nearest lines with code.
func (e *LineError) near(before, after int) {
	e.Before = max(e.Before, before)
	if after != 0 && (e.After == 0 || after < e.After) {
		e.After = after
	}
}

// noSource says that no file of that name was compiled into the modules.
func (s *Space) noSource(p Place, list []*Module) error {
	e := &NotFoundError{What: p.File, Kind: "source file", Where: s.String()}
	if p.Module != "" && len(list) > 0 {
		e.Where = list[0].Name
	}
	seen := map[string]bool{}
	var all []string
	for _, m := range list {
		add := func(name string) {
			if n := baseName(name); n != "" && !seen[n] {
				seen[n] = true
				all = append(all, n)
			}
		}
		// A module that can't be read offers no names.
		err := m.File.ReadDebug(func(d *debuginfo.Data) error {
			for _, u := range d.Units() {
				add(u.Name())
			}
			return nil
		})
		if t := m.File.goLineTable(); t != nil && err != nil {
			t.eachFile(add)
		}
	}
	e.Near = nearest(baseName(p.File), all, maxNear)
	return e
}

// lineSites makes sites of starts of lines in a module.
func (s *Space) lineSites(m *Module, at []lineStart, p Place) ([]Site, error) {
	var out []Site
	for _, start := range at {
		site, err := s.siteFor(p, m.Addr(Vaddr(start.at)))
		if err != nil && p.Lines != "" {
			continue // one row of code that isn't mapped must not make the others fail
		}
		if err != nil {
			return nil, err
		}
		site.NameAs(NamedAs{Entry: start.of})
		out = append(out, site)
	}
	return out, nil
}

// resolveFuncLine finds FUNC:LINE, whose lines count from the one where the
// function's name is, which is 0: as in perf probe.
func (s *Space) resolveFuncLine(p Place, list []*Module) ([]Site, error) {
	fn := p
	fn.Kind, fn.Line, fn.Lines = PlaceSymbol, 0, ""
	starts, err := s.Resolve(fn)
	if err != nil {
		return nil, err
	}
	var out []Site
	var missing error
	for _, site := range starts {
		if site.Module == nil {
			continue
		}
		var at []lineStart
		err := site.Module.File.ReadDebug(func(d *debuginfo.Data) error {
			e, ok := entryOf(d, site)
			if !ok {
				return ErrNoDebugInfo
			}
			file, first := declared(&e)
			search := lineSearch{d: d, line: first + p.Line, glob: p.Lines, first: first, match: func(f string) bool { return f == file }, in: e.Ranges()}
			search.units([]*debuginfo.Unit{e.Unit()})
			if at = search.places(); at == nil {
				missing = search.missing(p)
			}
			return nil
		})
		if t := site.Module.File.goLineTable(); t != nil && errors.Is(err, ErrNoDebugInfo) {
			if fn, ok := t.functionAt(site.Vaddr); ok {
				search := lineSearch{glob: p.Lines}
				if at, err = search.goFunction(t, &fn, p.Line), nil; at == nil {
					missing = search.missing(p)
				}
			}
		}
		if err != nil {
			err = fmt.Errorf("find %s: %w", p, err)
			if p.IsGlob() {
				missing = cmp.Or(missing, err) // a function of unknown source must not make the others fail
				continue
			}
			return nil, err
		}
		sites, err := s.lineSites(site.Module, at, p)
		if err != nil {
			return nil, err
		}
		out = append(out, sites...)
	}
	if out == nil && missing == nil {
		missing = s.notFound(fn, list)
	}
	if out == nil {
		return nil, missing
	}
	return out, nil
}

// missing says that a function has no code of a line.
func (s *lineSearch) missing(p Place) error {
	le := &LineError{File: p.Symbol, Line: p.Line, Lines: p.Lines}
	if s.before >= s.first && s.before > 0 {
		le.Before = s.before - s.first
	}
	if s.after > 0 {
		le.After = s.after - s.first
	}
	return le
}

// entryOf is the debug information's entry of the function, or of the inlined
// instance, that a site is in.
func entryOf(d *debuginfo.Data, site Site) (debuginfo.Entry, bool) {
	if as := site.NamedAs(); !as.Entry.IsZero() {
		return as.Entry.Entry()
	}
	return d.FuncAt(uint64(site.Vaddr))
}

// declared is where a function is declared; 0 is unknown.
func declared(e *debuginfo.Entry) (file string, line int) {
	v, at, ok := e.Chased(dwarf.AttrDeclLine)
	if n, isInt := v.Int(); ok && isInt {
		line = int(n)
	}
	if v, at, ok = e.Chased(dwarf.AttrDeclFile); ok {
		if n, isInt := v.Int(); isInt {
			u := at.Unit()
			file = u.FileOf(n)
		}
	}
	return file, line
}
