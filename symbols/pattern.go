package symbols

import (
	"cmp"
	"debug/elf"
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
	tables := f.tables().list
	named := f.codeSymbols()
	if strings.Trim(pattern, "*") != "" || pattern == "" {
		named = slices.DeleteFunc(named, func(c codeSymbol) bool {
			t := tables[c.table]
			name, _, _ := strings.Cut(t.name(&t.symbols[c.symbol]), "@")
			ok := matchPattern(pattern, name)
			if !ok && readable && isMangled(name) && strings.Contains(name, part) && mayStart(name, start) {
				ok = slices.ContainsFunc(nameForms(name), func(form string) bool { return matchPattern(squeezed, form) })
			}
			return !ok
		})
	}
	var unnamed []Symbol
	if matchPattern(pattern, "FDE_0x0") || strings.HasPrefix(pattern, "FDE_") {
		for _, r := range f.fdes() {
			if !f.unnamed(r) {
				continue
			}
			if s := f.fdeFunc(r).Symbol; s.Kind == KindFDE && matchPattern(pattern, s.Name) {
				unnamed = append(unnamed, s)
			}
		}
	}
	return f.firstAt(named, unnamed)
}

// firstAt returns, for each address, the symbol that it is called by, in order of address. named and unnamed are
// in that order.
func (f *File) firstAt(named []codeSymbol, unnamed []Symbol) []Symbol {
	tables := f.tables().list
	distinct := len(unnamed)
	for i := range named {
		if i == 0 || named[i].start != named[i-1].start {
			distinct++
		}
	}
	if distinct == 0 {
		return nil
	}
	out := make([]Symbol, 0, distinct)
	var same []Symbol // of one address
	for i, j := 0, 0; i < len(named) || j < len(unnamed); {
		at := ^Vaddr(0)
		if i < len(named) {
			at = named[i].start
		}
		if j < len(unnamed) {
			at = min(at, unnamed[j].Vaddr)
		}
		same = same[:0]
		var last *table
		for prev := (*rawSymbol)(nil); i < len(named) && named[i].start == at; i++ {
			t := tables[named[i].table]
			s := &t.symbols[named[i].symbol]
			if prev == nil || !sameText(last, prev, t, s) || elf.ST_BIND(prev.info) != elf.ST_BIND(s.info) {
				same = append(same, f.symbol(t, s))
			}
			last, prev = t, s
		}
		for ; j < len(unnamed) && unnamed[j].Vaddr == at; j++ {
			same = append(same, unnamed[j])
		}
		out = append(out, slices.MinFunc(same, func(x, y Symbol) int { return compareNames(&x, &y) }))
	}
	return out
}

// compareNames orders the names of one address, the one that it is called by first.
func compareNames(x, y *Symbol) int {
	return cmp.Or(cmp.Compare(bindRank(x), bindRank(y)), cmp.Compare(underscores(x.Name), underscores(y.Name)),
		cmp.Compare(len(x.Name), len(y.Name)), cmp.Compare(x.Name, y.Name))
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
