package symbols

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
		// What can't be read has no names to offer.
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
		site, err := s.siteAt(m.Addr(Vaddr(start.at)), p.String())
		if err != nil && p.Lines != "" {
			continue // a row of code that isn't there doesn't spoil the others
		}
		if err != nil {
			return nil, err
		}
		site.Entry = start.of
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
				missing = cmp.Or(missing, err) // one of unknown source doesn't spoil the others
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
	if !site.Entry.IsZero() {
		return site.Entry.Entry()
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

// lineSearch looks for the code of a line.
type lineSearch struct {
	d     *debuginfo.Data
	line  int
	glob  string // over line numbers, in place of line; "" is none
	first int    // the line that the glob's count from, 0 is the file's start
	match func(file string) bool
	in    []debuginfo.Range // nil: anywhere

	known         bool // a file matched
	before, after int  // the nearest lines with code, of a glob the last and the first
	found         []lineStart
}

// lineStart is where a run of code of a line starts.
type lineStart struct {
	at   uint64
	line int
	of   debuginfo.Ref // the function or inlined instance in whose source the line is; zero: not told
}

// wants reports whether a line is looked for.
func (s *lineSearch) wants(line int) bool {
	if s.glob == "" {
		return line == s.line
	}
	return line >= s.first && matchPattern(s.glob, strconv.Itoa(line-s.first))
}

// units goes through the line tables of the units that speak of the file.
func (s *lineSearch) units(list []*debuginfo.Unit) {
	for _, u := range list {
		any := false
		files := u.Files()
		want := make([]bool, len(files))
		for i, f := range files {
			want[i] = s.match(f)
			any = any || want[i]
		}
		if !any {
			continue
		}
		s.known = true
		if t := u.Lines(); t != nil {
			s.table(t, want)
		}
	}
}

// table takes the first row of each run of rows of the line.
func (s *lineSearch) table(t *debuginfo.LineTable, want []bool) {
	last := 0
	for _, r := range t.Rows {
		if r.End || int(r.File) >= len(want) || !want[r.File] {
			last = 0
			continue
		}
		line := int(r.Line)
		if !r.Stmt || line == 0 || s.in != nil && !covered(s.in, r.Addr) {
			continue
		}
		if s.take(line) && last != line {
			s.found = append(s.found, lineStart{at: r.Addr, line: line})
		}
		last = line
	}
}

// take reports whether a line with code is looked for, and keeps the nearest ones.
func (s *lineSearch) take(line int) bool {
	switch {
	case s.wants(line):
		return true
	case s.glob != "":
		s.before = max(s.before, line)
		if s.after == 0 || line < s.after {
			s.after = line
		}
	case line < s.line:
		s.before = max(s.before, line)
	case s.after == 0 || line < s.after:
		s.after = line
	}
	return false
}

func covered(list []debuginfo.Range, pc uint64) bool {
	for _, r := range list {
		if r.Low <= pc && pc < r.High {
			return true
		}
	}
	return false
}

// places chooses one address of each line for each function and inlined
// instance: the lowest of the part that the function is entered at, and of those
// apart from it (.cold), which rarely run, only where there is no other. They are in
// order, each once.
func (s *lineSearch) places() []lineStart {
	byPlace := func(x, y lineStart) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.line, y.line)) }
	slices.SortFunc(s.found, byPlace)
	s.found = slices.CompactFunc(s.found, func(x, y lineStart) bool { return x.at == y.at && x.line == y.line })
	type home struct {
		entry debuginfo.Ref
		line  int
	}
	seen := map[home]bool{}
	var out, apart []lineStart
	take := func(start lineStart, scopes []debuginfo.Entry) {
		in := home{line: start.line}
		for _, e := range scopes {
			if e.Tag() != dwarf.TagLexDwarfBlock {
				in.entry = e.Ref()
			}
		}
		start.of = s.around(scopes, start.line)
		if !in.entry.IsZero() {
			if seen[in] {
				return
			}
			seen[in] = true
		}
		out = append(out, start)
	}
	s.locate()
	for _, start := range s.found {
		if scopes := s.d.Scopes(start.at); isApart(scopes, start.at) {
			apart = append(apart, start)
		} else {
			take(start, scopes)
		}
	}
	for _, start := range apart {
		take(start, s.d.Scopes(start.at))
	}
	slices.SortFunc(out, byPlace)
	return slices.CompactFunc(out, func(x, y lineStart) bool { return x.at == y.at })
}

// locate has the units of all that was found looked for at once.
func (s *lineSearch) locate() {
	var all []uint64
	for _, start := range s.found {
		all = append(all, start.at)
	}
	s.d.Locate(all)
}

// isApart reports an address in a part of its function other than the one that is
// entered.
func isApart(scopes []debuginfo.Entry, at uint64) bool {
	for i := range scopes {
		if scopes[i].Tag() != dwarf.TagSubprogram {
			continue
		}
		list := scopes[i].Ranges()
		entry, ok := scopes[i].EntryPC()
		for _, r := range list {
			if ok && len(list) > 1 && r.Low <= entry && entry < r.High {
				return at < r.Low || at >= r.High
			}
		}
	}
	return false
}

// around is the one of the scopes of an address in whose source a line is: of
// functions of the file the last that begins before it. What one line has of
// several is the innermost's.
func (s *lineSearch) around(scopes []debuginfo.Entry, line int) (of debuginfo.Ref) {
	last := 0
	for i := range scopes {
		if scopes[i].Tag() == dwarf.TagLexDwarfBlock {
			continue
		}
		file, first := declared(&scopes[i])
		if first == 0 {
			return debuginfo.Ref{}
		}
		if first >= last && first <= line && s.match(file) {
			of, last = scopes[i].Ref(), first
		}
	}
	return of
}
