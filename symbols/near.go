package symbols

import (
	"cmp"
	"slices"
	"strings"
)

const (
	maxNear       = 5   // names offered
	maxNearLength = 256 // longer names are not compared, in bytes
)

// notFound makes the error of a name that none of the modules has.
func (s *Space) notFound(p Place, list []*Module) error {
	e := &NotFoundError{What: p.Symbol, Where: s.String()}
	if p.File != "" {
		e.What += "@" + p.File
	}
	if p.Module != "" && len(list) > 0 {
		e.Where = list[0].Name
		if len(list) > 1 && wildModule(p.Module) {
			e.Where = p.Module // the names of all are searched
		}
	}
	for _, m := range list {
		if (m.Main || p.Module != "") && p.File == "" && m.File.tables().stripped && m.Name != "[vdso]" {
			e.Stripped, e.OtherBuild = m.Name, m.File.otherBuild.Load()
			break
		}
	}
	if p.Module != "" || p.File != "" {
		e.Near = s.elsewhere(p, list)
	}
	if hasParams(p.Symbol) { // no function of these types
		for _, m := range list {
			_, all := m.File.overloads(p.Symbol)
			for _, sym := range all {
				base, _ := cutClone(sym.Name)
				if name := demangleName(base); len(e.Near) < maxNear && !slices.Contains(e.Near, name) {
					e.Near = append(e.Near, name)
				}
			}
		}
	}
	for _, look := range [...]func(string, []*Module, int) []string{fullNames, nearNames, nearReadable} {
		for _, name := range look(p.Symbol, list, maxNear-len(e.Near)) {
			if !slices.Contains(e.Near, name) {
				e.Near = append(e.Near, name)
			}
		}
	}
	return e
}

// elsewhere finds the very name in other modules, or in other source files.
func (s *Space) elsewhere(p Place, list []*Module) []string {
	var out []string
	for _, m := range s.Modules() {
		for _, sym := range m.File.Lookup(p.Symbol) {
			if len(out) == maxNear {
				return out
			}
			text := m.Name + ":" + p.Symbol
			if slices.Contains(list, m) {
				if p.File == "" || sym.File == "" {
					continue
				}
				text = p.Symbol + "@" + sym.File
			}
			if sym.Kind.Code() && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// fullNames returns up to n names of functions that end in name behind what their
// language puts before it: namespaces, classes, a package. They are accepted as
// places.
func fullNames(name string, list []*Module, n int) []string {
	want := squeeze(name)
	words := mangledWords(name)
	if n <= 0 || len(words) == 0 {
		return nil
	}
	var out []string
	for _, m := range list {
		isGo := m.File.IsGo()
		for _, t := range m.File.tables().list {
			hits := t.holding(withoutLength(words[0]))
			if len(hits) == 0 && !isGo {
				continue
			}
			for i := range t.symbols {
				s := &t.symbols[i]
				if !isGo && !hits.in(s.name) || !m.File.isCode(t, s) {
					continue
				}
				raw, _, _ := strings.Cut(t.name(s), "@")
				full := ""
				switch {
				case isGo && strings.HasSuffix(raw, "."+name):
					full = raw
				case isMangled(raw) && holdsAll(raw, words):
					forms := nameForms(raw)
					if i := slices.IndexFunc(forms, func(f string) bool { return strings.HasSuffix(f, "::"+want) }); i >= 0 {
						full = forms[i]
					}
				}
				if full != "" && !slices.Contains(out, full) {
					if out = append(out, full); len(out) == n {
						return out
					}
				}
			}
		}
	}
	return out
}

// nearest returns up to n of the names that differ least from name.
func nearest(name string, all []string, n int) []string {
	if len(name) > maxNearLength || name == "" {
		return nil
	}
	near := newNearby(name)
	for _, other := range all {
		near.look(other)
	}
	return near.best(n)
}

// nearby collects the names that differ from a name in at most a third of its letters.
type nearby struct {
	name  string
	limit int
	rows  distanceRows
	found []near
}

// near is a name and how many letters it differs in.
type near struct {
	name     string
	distance int
}

func newNearby(name string) *nearby { return &nearby{name: name, limit: max(1, len(name)/3)} }

// look adds a name if it is near enough, and reports whether it is.
func (n *nearby) look(other string) bool {
	d, ok := n.rows.distance(n.name, other, n.limit)
	if ok {
		n.found = append(n.found, near{other, d})
	}
	return ok
}

// best returns the count names that differ least. Among names that differ in as many letters, those with the longer
// common prefix come first.
func (n *nearby) best(count int) []string {
	slices.SortFunc(n.found, func(x, y near) int {
		return cmp.Or(cmp.Compare(x.distance, y.distance),
			cmp.Compare(commonPrefix(y.name, n.name), commonPrefix(x.name, n.name)), cmp.Compare(x.name, y.name))
	})
	var out []string
	for _, f := range n.found[:min(count, len(n.found))] {
		out = append(out, f.name)
	}
	return out
}

// nearNames returns up to n names of functions in the modules that differ least
// from name.
func nearNames(name string, list []*Module, n int) []string {
	if n <= 0 || len(name) > maxNearLength || name == "" {
		return nil
	}
	near := newNearby(name)
	seen := map[string]bool{}
	for _, m := range list {
		f := m.File
		for _, t := range f.tables().list {
			for i := range t.symbols {
				s := &t.symbols[i]
				if !f.isCode(t, s) {
					continue
				}
				other, _, _ := strings.Cut(t.name(s), "@")
				if d := len(other) - len(name); d > near.limit || -d > near.limit || seen[other] {
					continue
				}
				if near.look(other) {
					seen[other] = true
				}
			}
		}
	}
	return near.best(n)
}

// nearReadable is nearNames for names that are mangled in the file: without
// parameters and template arguments, compared whole, or by their last part with
// a name that has no other. They are accepted as places.
func nearReadable(name string, list []*Module, n int) []string {
	name = squeeze(withoutParams(name))
	if n <= 0 || isMangled(name) {
		return nil
	}
	var all []string
	full := map[string][]string{} // by what is compared
	last := name[strings.LastIndexByte(name, ':')+1:]
	var rows distanceRows
	seen := map[string]bool{}
	for _, m := range list {
		for _, t := range m.File.tables().list {
			for i := range t.symbols {
				s := &t.symbols[i]
				raw, _, _ := strings.Cut(t.name(s), "@")
				if !isMangled(raw) || len(seen) == maxNearReadable || !m.File.isCode(t, s) {
					continue
				}
				if !rows.resembles(raw, last, max(1, len(name)/3)) {
					continue // demangling it would take much longer
				}
				bare, ok := bareName(raw)
				if !ok || seen[bare] {
					continue
				}
				seen[bare] = true
				part := bare
				if !strings.Contains(name, "::") {
					part = bare[strings.LastIndexByte(bare, ':')+1:]
				}
				if full[part] == nil {
					all = append(all, part)
				}
				full[part] = append(full[part], bare)
			}
		}
	}
	var out []string
	for _, part := range nearest(name, all, n) {
		out = append(out, full[part]...)
	}
	return out[:min(n, len(out))]
}

// resembles reports whether an identifier in a mangled name differs by no more
// than limit letters from name: those are written behind their length.
func (r *distanceRows) resembles(raw, name string, limit int) bool {
	if strings.HasPrefix(name, "op") || len(name) > maxNearLength {
		return true // an operator, maybe, whose name is a code
	}
	for i := 0; i < len(raw); {
		n, from := 0, i
		for ; i < len(raw) && raw[i] >= '0' && raw[i] <= '9' && n < 1<<16; i++ {
			n = n*10 + int(raw[i]-'0')
		}
		if i == from {
			i++
			continue
		}
		word := raw[i:min(i+n, len(raw))]
		if d := len(word) - len(name); d > limit || -d > limit {
			continue
		}
		if _, ok := r.distance(name, word, limit); ok {
			return true
		}
	}
	return false
}

// maxNearReadable bounds the number of names that are demangled for a suggestion. So many take half a second.
const maxNearReadable = 100_000

// distanceRows are the rows that distance works in, kept between calls.
type distanceRows struct{ prev2, prev, row [maxNearLength*2 + 1]int }

// distance returns the number of letters that must be inserted, removed, replaced, or swapped with their neighbour, to
// turn a into b. ok is false if it is more than limit.
func (r *distanceRows) distance(a, b string, limit int) (d int, ok bool) {
	if len(b) >= len(r.row) {
		return 0, false
	}
	for j := 0; j <= len(b); j++ {
		r.prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		r.row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(r.prev[j]+1, r.row[j-1]+1, r.prev[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, r.prev2[j-2]+1)
			}
			r.row[j] = d
			least = min(least, d)
		}
		if least > limit {
			return 0, false
		}
		n := len(b) + 1
		copy(r.prev2[:n], r.prev[:n])
		copy(r.prev[:n], r.row[:n])
	}
	return r.prev[len(b)], r.prev[len(b)] <= limit
}

// commonPrefix returns the length in bytes of the longest common prefix of two names.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// notMapped makes the error of a module that is not there.
func (s *Space) notMapped(name string) error {
	e := &NotMappedError{Module: name, Static: s.static()}
	var rows distanceRows
	rank := map[string]int{}
	short := shortName(name[strings.LastIndexByte(name, '/')+1:])
	for _, m := range s.Modules() {
		d, ok := rows.distance(short, shortName(m.Name), max(2, len(short)/2))
		if len(short) > maxNearLength || !ok {
			d = maxNearLength
		}
		has := m.Name
		if strings.HasPrefix(m.Path, "/") && strings.Contains(name, "/") && m.Name == name[strings.LastIndexByte(name, '/')+1:] {
			has = m.Path // another file of the same name
		}
		e.Candidates = append(e.Candidates, has)
		rank[has] = d
	}
	slices.SortStableFunc(e.Candidates, func(x, y string) int { return cmp.Compare(rank[x], rank[y]) })
	e.Candidates = e.Candidates[:min(len(e.Candidates), 2*maxNear)]
	return e
}

// static reports whether the process has nothing mapped but its program and the
// kernel's own code: no loader brought libraries.
func (s *Space) static() bool {
	main := false
	for _, m := range s.Modules() {
		main = main || m.Main
		if !m.Main && m.Name != "[vdso]" {
			return false
		}
	}
	return main
}
