package symbols

import (
	"path/filepath"
	"slices"
	"strings"
)

// pick chooses the function that a name means in a module. The error is an *AmbiguousError if there are several.
func pick(p Place, m *Module, list []Symbol) (Symbol, error) {
	best := list[0]
	if best.Version != "" && best.Default && !strings.Contains(p.Symbol, "@") {
		// NAME alone is the current version; the old ones have names of their own.
		list = slices.DeleteFunc(list, func(s Symbol) bool { return s.Version != "" && !s.Default })
	}
	distinct := slices.Clone(list)
	slices.SortStableFunc(distinct, func(x, y Symbol) int {
		switch {
		case x.Vaddr < y.Vaddr:
			return -1
		case x.Vaddr > y.Vaddr:
			return 1
		}
		return 0
	})
	distinct = slices.CompactFunc(distinct, func(x, y Symbol) bool { return x.Vaddr == y.Vaddr })
	if len(distinct) == 1 {
		return best, nil
	}
	e := &AmbiguousError{Name: p.Symbol, list: distinct}
	for _, sym := range distinct {
		e.Candidates = append(e.Candidates, candidate(m, sym, distinct))
	}
	return Symbol{}, e
}

// candidate returns what to write for one of several: what tells it from the
// others without blanks, and if nothing does its address.
func candidate(m *Module, sym Symbol, all []Symbol) Candidate {
	alone := func(same func(Symbol) bool) bool {
		n := 0
		for _, s := range all {
			if same(s) {
				n++
			}
		}
		return n == 1
	}
	readable := sym.Demangled()
	note := sym.Vaddr.String()
	if readable != sym.Name {
		note = readable + ", " + note
	}
	if kind := structorKind(sym.Name, all); kind != "" {
		note = kind + ", " + note
	}
	if short := distinctForm(sym, all); short != "" {
		if short == squeeze(readable) {
			note = sym.Vaddr.String()
			if !strings.Contains(withoutParams(readable), " ") && !strings.Contains(readable[strings.LastIndexByte(readable, ')')+1:], " ") {
				short = readable // a definition takes blanks in parentheses
			}
		}
		return Candidate{Text: short, Note: note}
	}
	switch base := filepath.Base(sym.File); {
	case alone(func(s Symbol) bool { return s.Name == sym.Name }):
		return Candidate{Text: sym.Name, Note: note}
	case sym.Version != "" && alone(func(s Symbol) bool { return s.Name == sym.Name && s.Version == sym.Version }):
		return Candidate{Text: sym.Name + "@" + sym.Version, Note: note}
	case sym.File != "" && alone(func(s Symbol) bool { return s.Name == sym.Name && sameSource(s.File, base) }):
		return Candidate{Text: sym.Name + "@" + base, Note: note}
	}
	if sym.File != "" {
		note = sym.File
	} else if readable == sym.Name {
		note = sym.Binding.String()
	}
	return Candidate{Text: m.Name + ":" + sym.Vaddr.String(), Note: note}
}

// distinctForm is the shortest readable form of a mangled name that no other of
// the symbols has; "" is none.
func distinctForm(sym Symbol, all []Symbol) string {
	best := ""
	for _, form := range nameForms(sym.Name) {
		if best != "" && len(form) >= len(best) || strings.ContainsAny(form, "[") {
			continue // a bracket would make it a pattern first, elsewhere
		}
		alone := true
		for _, s := range all {
			if s.Name != sym.Name && slices.Contains(nameForms(s.Name), form) || s.Name == sym.Name && s.Vaddr != sym.Vaddr {
				alone = false
				break
			}
		}
		if alone {
			best = form
		}
	}
	return best
}

// structorKinds are the codes of the Itanium C++ ABI (5.1.4.3) for the several
// functions that one constructor or destructor becomes.
var structorKinds = map[string]string{
	"C1": "complete object", "C2": "base object", "C3": "allocating",
	"D0": "deleting", "D1": "complete object", "D2": "base object",
}

// structorKind says which of a constructor's or destructor's functions a mangled
// name is: where another one's name differs in nothing but that code.
func structorKind(name string, all []Symbol) string {
	for _, s := range all {
		if len(s.Name) != len(name) {
			continue
		}
		at := -1
		for i := range len(name) {
			if s.Name[i] == name[i] {
				continue
			}
			if at >= 0 {
				at = -1
				break
			}
			at = i
		}
		if at > 0 && structorKinds[s.Name[at-1:at+1]] != "" {
			return structorKinds[name[at-1:at+1]]
		}
	}
	return ""
}
