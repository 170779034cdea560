package symbols

import (
	"slices"
	"strconv"
	"strings"
)

// PlaceNames gives functions of one file the names that places accept: each means one function
// only. It is not safe for concurrent use.
type PlaceNames struct {
	f        *File
	raw      bool
	accept   func(Place) bool
	at       map[Place]Vaddr // severalFuncs where several have the name
	readable map[string]string
}

// severalFuncs stands for a name that means several functions.
const severalFuncs = ^Vaddr(0)

// PlaceNames makes the names of the file's functions: as in the file if raw,
// else readable where that tells them apart. accept says whether the definition
// language can write a place.
func (f *File) PlaceNames(raw bool, accept func(Place) bool) *PlaceNames {
	n := &PlaceNames{f: f, raw: raw, accept: accept, at: map[Place]Vaddr{}, readable: map[string]string{}}
	for _, t := range f.tables().list {
		for i := range t.symbols {
			s := &t.symbols[i]
			if !f.isCode(t, s) {
				continue
			}
			n.add(f.symbol(t, s))
		}
	}
	return n
}

// add notes what a symbol may be called.
func (n *PlaceNames) add(s Symbol) {
	if !n.raw && strings.HasPrefix(s.Name, "_R") {
		if short := (Place{Symbol: s.Short()}); short.Symbol != demangleName(s.Name) {
			n.at[short] = severalFuncs // this function has the name, too, besides any other
		}
	}
	for _, form := range n.forms(&s) {
		if form.Symbol == "" || form.Symbol == s.Name && form.File == "" && s.Version != "" && !s.Default {
			continue // NAME alone is the current version
		}
		if have, ok := n.at[form]; ok && have != s.Vaddr {
			n.at[form] = severalFuncs
		} else {
			n.at[form] = s.Vaddr
		}
	}
}

// forms are the names of a symbol that places know, the best first; one without
// Symbol is none.
func (n *PlaceNames) forms(s *Symbol) (out [6]Place) {
	file := baseName(s.File)
	if !n.raw && isMangled(s.Name) {
		text, known := n.readable[s.Name]
		if !known {
			text = demangleName(s.Name)
			n.readable[s.Name] = text
		}
		if text != s.Name {
			out[0].Symbol = text
			base, _, _ := strings.Cut(s.Name, ".llvm.")
			if hash := rustHash(base); hash != "" {
				out[1].Symbol = text + "::" + hash
			}
			if file != "" {
				out[2].Symbol, out[2].File = text, file
			}
		}
	}
	out[3].Symbol = s.Name
	if s.Version != "" {
		out[4].Symbol = s.Name + "@" + s.Version
	}
	if file != "" {
		out[5].Symbol, out[5].File = s.Name, file
	}
	return out
}

// Of returns a function's name. If no name means it alone, that is its address in the file,
// which is a place after the module's name.
func (n *PlaceNames) Of(s *Symbol) Place {
	for _, form := range n.forms(s) {
		at, known := n.at[form]
		if form.Symbol == "" || known && at != s.Vaddr || !known && form.Symbol != s.Name {
			continue
		}
		if n.accept(form) {
			return form
		}
	}
	return Place{Kind: PlaceVaddr, Value: uint64(s.Vaddr)}
}

// Functions lists functions as Funcs does: those that a place means by a name, a
// shell pattern (of either with @FILE.c behind it), or an address; "*" and ""
// mean all.
func (f *File) Functions(pattern string) []Func {
	if pattern == "*" || pattern == "" {
		return f.Funcs()
	}
	if v, err := strconv.ParseUint(pattern, 0, 64); err == nil {
		if fn, ok := f.FuncAt(Vaddr(v)); ok && fn.Start == Vaddr(v) {
			return []Func{fn}
		}
		return nil
	}
	found := f.functionsNamed(pattern, "")
	if i := strings.LastIndexByte(pattern, '@'); len(found) == 0 && i > 0 {
		found = f.functionsNamed(pattern[:i], pattern[i+1:])
	}
	out := make([]Func, 0, len(found))
	seen := map[Vaddr]bool{}
	for _, s := range found {
		if seen[s.Vaddr] {
			continue
		}
		seen[s.Vaddr] = true
		fn := Func{Symbol: s, Start: s.Vaddr, End: s.Vaddr + Vaddr(s.Size)}
		if home, ok := f.FuncAt(s.Vaddr); ok && home.Start == s.Vaddr {
			fn.End = home.End
		}
		out = append(out, fn)
	}
	return out
}

// functionsNamed finds functions by a name, else by a pattern; file is "" or the
// source file that they are of.
func (f *File) functionsNamed(name, file string) []Symbol {
	found := slices.DeleteFunc(slices.Clone(f.lookupIn(Place{Symbol: name, File: file})), func(s Symbol) bool { return !s.Kind.Code() || s.Kind == KindPLT })
	if len(found) > 0 {
		return found
	}
	found = f.Glob(name)
	if file != "" {
		found = slices.DeleteFunc(found, func(s Symbol) bool { return !sameSource(s.File, file) })
	}
	return found
}
