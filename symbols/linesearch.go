package symbols

import (
	"cmp"
	"debug/dwarf"
	"slices"
	"strconv"

	"kprobe/symbols/debuginfo"
)

// lineSearch searches the code of a line, or of the lines that a glob matches.
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
	// within says that the run has begun before, and discriminators tell its parts apart.
	within bool
}

// wants reports whether a line is searched.
func (s *lineSearch) wants(line int) bool {
	if s.glob == "" {
		return line == s.line
	}
	return line >= s.first && matchPattern(s.glob, strconv.Itoa(line-s.first))
}

// units searches the line tables of the units that name the file.
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

// table takes the rows of the line: of each run of them whose parts discriminators tell apart the first, and
// of others all, as each may be in another block.
func (s *lineSearch) table(t *debuginfo.LineTable, want []bool) {
	last, any := 0, false // the line of the row before, and whether its run has begun
	for _, r := range t.Rows {
		if r.End || int(r.File) >= len(want) || !want[r.File] {
			last = 0
			continue
		}
		line := int(r.Line)
		before := last
		any = any && line == before
		last = line
		if !r.Stmt || line == 0 || s.in != nil && !covered(s.in, r.Addr) {
			continue
		}
		if again := line == before && r.Parts; s.take(line) && !(again && any) {
			s.found = append(s.found, lineStart{at: r.Addr, line: line, within: again})
		}
		any = true
	}
}

// take reports whether a line with code is searched, and otherwise notes it if it is the nearest before or after.
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

// places chooses one address of each line for each function, inlined instance and
// block, as gdb does: the lowest of the part that the function is entered at, and of those
// apart from it (.cold), which rarely run, only where there is no other. Go's blocks don't
// count, as with delve. Starts within a run count only where the function has no other of
// the line. They are in order, each once.
func (s *lineSearch) places() []lineStart {
	byPlace := func(x, y lineStart) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.line, y.line)) }
	slices.SortFunc(s.found, byPlace)
	s.found = slices.CompactFunc(s.found, func(x, y lineStart) bool { return x.at == y.at && x.line == y.line })
	type home struct {
		entry debuginfo.Ref
		line  int
	}
	seen := map[home]bool{}
	has := map[home]bool{} // the functions that have a place of the line
	var out, apart, within []lineStart
	take := func(start lineStart, scopes []debuginfo.Entry) {
		in := home{line: start.line}
		for _, e := range scopes {
			if e.Tag() != dwarf.TagLexDwarfBlock || !e.Unit().Language().IsGo() {
				in.entry = e.Ref()
			}
		}
		start.of = s.around(scopes, start.line)
		if len(scopes) > 0 {
			function := home{scopes[0].Ref(), start.line}
			if start.within && has[function] {
				return
			}
			has[function] = true
		}
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
		switch scopes := s.d.Scopes(start.at); {
		case start.within:
			within = append(within, start)
		case isApart(scopes, start.at):
			apart = append(apart, start)
		default:
			take(start, scopes)
		}
	}
	for _, start := range slices.Concat(apart, within) {
		take(start, s.d.Scopes(start.at))
	}
	slices.SortFunc(out, byPlace)
	return slices.CompactFunc(out, func(x, y lineStart) bool { return x.at == y.at })
}

// locate finds the units of all line starts in one pass.
func (s *lineSearch) locate() {
	var all []uint64
	for _, start := range s.found {
		all = append(all, start.at)
	}
	s.d.Locate(all)
}

// isApart reports whether an address is in a part of its function that is apart from its entry (.cold).
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

// around returns the scope of an address in whose source a line is: of the scopes in the file, the last that
// begins before the line. If several begin on one line, it is the innermost.
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
