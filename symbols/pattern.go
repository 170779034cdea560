package symbols

import (
	"cmp"
	"slices"
	"strings"

	"kprobe/symbols/glob"
)

// matchPattern reports whether the whole name matches a shell pattern.
func matchPattern(pattern, name string) bool { return glob.Match(pattern, name, "!^") }

// Glob returns the functions whose name, as in the file or readable, matches a
// shell pattern: one symbol per address, by address. PLT stubs are not among
// them; ranges without a name are under FDE_0xVADDR.
//
// In a Go file [...] stands for any type arguments, as in what Go's tracebacks print.
func (f *File) Glob(pattern string) []Symbol {
	if f.IsGo() {
		pattern = strings.ReplaceAll(pattern, "[...]", "[[]*]")
	}
	part := ""
	if words := literalWords(pattern); len(words) > 0 && !strings.ContainsRune(pattern, '[') {
		part = words[0] // letters in a set would be no literal text
	}
	readable := strings.ContainsAny(pattern, ":(<~") || part != ""
	squeezed := squeeze(pattern)
	start := squeezed[:len(squeezed)-len(strings.TrimLeftFunc(squeezed, func(r rune) bool { return r < 0x80 && isWord(byte(r)) }))]
	type match struct {
		t *table
		s *rawSymbol
	}
	var found []match
	for _, t := range f.tables().list {
		for i := range t.symbols {
			s := &t.symbols[i]
			if !f.isCode(t, s) {
				continue
			}
			name, _, _ := strings.Cut(t.name(s), "@")
			ok := matchPattern(pattern, name)
			if !ok && readable && isMangled(name) && strings.Contains(name, part) && mayStart(name, start) {
				ok = slices.ContainsFunc(nameForms(name), func(form string) bool { return matchPattern(squeezed, form) })
			}
			if ok {
				found = append(found, match{t, s})
			}
		}
	}
	out := make([]Symbol, 0, len(found))
	for _, x := range found {
		out = append(out, f.symbol(x.t, x.s))
	}
	if matchPattern(pattern, "FDE_0x0") || strings.HasPrefix(pattern, "FDE_") {
		for _, fn := range f.Funcs() {
			if fn.Symbol.Kind == KindFDE && matchPattern(pattern, fn.Symbol.Name) {
				out = append(out, fn.Symbol)
			}
		}
	}
	return firstAt(out)
}

// firstAt returns, for each address, the symbol that it is called by, in order of
// address.
func firstAt(list []Symbol) []Symbol {
	order := make([]int32, len(list)) // symbols are large
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		x, y := &list[i], &list[j]
		if x.Vaddr != y.Vaddr {
			return cmp.Compare(x.Vaddr, y.Vaddr)
		}
		return cmp.Or(cmp.Compare(bindRank(x), bindRank(y)), cmp.Compare(underscores(x.Name), underscores(y.Name)),
			cmp.Compare(len(x.Name), len(y.Name)), cmp.Compare(x.Name, y.Name), cmp.Compare(i, j))
	})
	var out []Symbol
	if len(list) > 0 {
		out = make([]Symbol, 0, len(list))
	}
	for _, i := range order {
		if n := len(out); n == 0 || out[n-1].Vaddr != list[i].Vaddr {
			out = append(out, list[i])
		}
	}
	return out
}

func bindRank(s *Symbol) int {
	if s.Binding == Local {
		return 1
	}
	return 0
}

// mayStart reports whether a readable form of a mangled name can start with
// the word, or the start of one: it compares the first identifier, as far as
// the mangled name shows it at its start, and so saves demangling most names.
func mayStart(mangled, word string) bool {
	if word == "" {
		return true
	}
	rest, ok := strings.CutPrefix(mangled, "_Z")
	if !ok {
		return true // Rust's crate hashes come in between
	}
	rest = strings.TrimPrefix(rest, "L")
	if r, nested := strings.CutPrefix(rest, "N"); nested {
		rest = strings.TrimLeft(r, "rVKRO")
	}
	n, i := 0, 0
	for i < len(rest) && i < 6 && rest[i] >= '0' && rest[i] <= '9' {
		n = n*10 + int(rest[i]-'0')
		i++
	}
	switch {
	case i > 0 && n <= len(rest)-i:
		first := rest[i : i+n]
		return strings.HasPrefix(first, word) || strings.HasPrefix(word, first)
	case strings.HasPrefix(rest, "S"):
		return strings.HasPrefix("std", word) || strings.HasPrefix(word, "std")
	}
	return true
}
