package symbols

import (
	"cmp"
	"debug/elf"
	"slices"
	"strings"
)

// nameIndex finds entries of the symbol tables by name: heads has the first of
// a name, next the one after it. Entries are numbered through all tables.
type nameIndex struct {
	heads map[string]int32
	next  []int32
}

// scansBeforeIndex is how many names are looked for by going through the
// tables before an index is made: a scan of 185,000 symbols takes 2 ms, the
// index 40 ms and 15 MB.
const scansBeforeIndex = 12

// Lookup returns the symbols of a name, the one that the name alone means first:
// the current version before old ones, exported before local. A name may be
//
//   - as in the file: open, _ZN2ns1fEi
//   - versioned: open@GLIBC_2.2.5, open@@GLIBC_2.2.5
//   - readable: ns::f(int), ns::f, Class::method, operator*; blanks don't count
//   - a PLT stub: printf@plt
//   - FDE_0xVADDR, the start of a range that unwinding information describes
//
// It returns nil when the file has no such name.
func (f *File) Lookup(name string) []Symbol {
	if out := f.lookupRaw(name); out != nil {
		return out
	}
	if v, ok := parseFDEName(name); ok {
		if r, ok := fdeAt(f.fdes(), v); ok && r.start == v && f.Executable(v) {
			s := f.fdeFunc(r).Symbol
			s.Name, s.Kind = name, KindFDE
			return []Symbol{s}
		}
		return nil
	}
	if name == "_start" && f.Executable(f.im.entry) {
		if fn, ok := f.FuncAt(f.im.entry); ok && fn.Symbol.Kind == KindEntry {
			return []Symbol{fn.Symbol}
		}
	}
	out := f.lookupReadable(name)
	if out == nil && hasParams(name) {
		out, _ = f.overloads(name)
	}
	return out
}

// lookupRaw finds names as they are in the file.
func (f *File) lookupRaw(name string) []Symbol {
	if stub, ok := strings.CutSuffix(name, "@plt"); ok {
		return f.lookupStub(name, stub)
	}
	base, version, exact := name, "", false
	if i := strings.IndexByte(name, '@'); i > 0 {
		base, version = name[:i], strings.TrimLeft(name[i:], "@")
		exact = strings.HasPrefix(name[i:], "@@")
	}
	if base == "" {
		return nil
	}
	var out []Symbol
	f.eachNamed(base, func(t *table, s *rawSymbol) {
		sym := f.symbol(t, s)
		if version != "" && (sym.Version != version || exact && !sym.Default) {
			return
		}
		out = append(out, sym)
	})
	return orderSymbols(out)
}

func (f *File) lookupStub(name, function string) []Symbol {
	var out []Symbol
	for _, s := range f.plt() {
		if s.Name == name {
			out = append(out, s)
		}
	}
	if out == nil && !isMangled(function) {
		words := mangledWords(function)
		for _, s := range f.plt() {
			if isMangled(s.Name) && holdsAll(s.Name, words) && slices.Contains(nameForms(strings.TrimSuffix(s.Name, "@plt")), squeeze(function)) {
				out = append(out, s)
			}
		}
	}
	return orderSymbols(out)
}

// eachNamed calls visit for the entries of a name.
func (f *File) eachNamed(name string, visit func(*table, *rawSymbol)) {
	tables := f.tables().list
	if f.lookups.next() <= scansBeforeIndex {
		for _, t := range tables {
			for i := range t.symbols {
				if s := &t.symbols[i]; t.is(s, name) && s.named() {
					visit(t, s)
				}
			}
		}
		return
	}
	index := f.names()
	at, ok := index.heads[name]
	for ; ok && at >= 0; at = index.next[at] {
		i := int(at)
		for _, t := range tables {
			if i < len(t.symbols) {
				visit(t, &t.symbols[i])
				break
			}
			i -= len(t.symbols)
		}
	}
}

func (f *File) names() *nameIndex {
	f.byName.get(func() nameIndex {
		total := 0
		for _, t := range f.tables().list {
			total += len(t.symbols)
		}
		index := nameIndex{heads: make(map[string]int32, total), next: make([]int32, total)}
		base := 0
		for _, t := range f.tables().list {
			for i := range t.symbols {
				s := &t.symbols[i]
				if !s.named() {
					continue
				}
				name, _, _ := strings.Cut(t.name(s), "@")
				if head, ok := index.heads[name]; ok {
					index.next[base+i] = head
				} else {
					index.next[base+i] = -1
				}
				index.heads[name] = int32(base + i)
			}
			base += len(t.symbols)
		}
		return index
	})
	return &f.byName.value
}

// lookupReadable finds mangled names by a readable form. Mangling keeps
// identifiers and has a code for each operator, so only names that hold those of
// the wanted name are demangled.
func (f *File) lookupReadable(name string) []Symbol {
	want := squeeze(name)
	words := mangledWords(name)
	if len(words) == 0 && !strings.ContainsAny(name, ":(<~") && !strings.HasPrefix(name, "operator") {
		return nil
	}
	longest := ""
	if len(words) > 0 {
		longest = withoutLength(words[0])
	}
	codes := operatorCodes(name)
	var out, whole []Symbol
	seen := map[string]readableMatch{}
	for _, t := range f.tables().list {
		hits := t.holding(longest)
		if len(hits) == 0 {
			continue
		}
		for i := range t.symbols {
			s := &t.symbols[i]
			if !hits.in(s.name) || !s.named() || s.typ() == elf.STT_TLS {
				continue
			}
			raw := t.name(s)
			if !isMangled(raw) || !holdsAll(raw, words) || !holdsAny(raw, codes) {
				continue
			}
			base, _, _ := strings.Cut(raw, "@")
			match, known := seen[base]
			if !known {
				switch slices.Index(nameForms(base), want) {
				case -1:
				case 0:
					match = matchesWhole
				default:
					match = matches
				}
				seen[base] = match
			}
			switch match {
			case matchesWhole:
				whole = append(whole, f.symbol(t, s))
				fallthrough
			case matches:
				out = append(out, f.symbol(t, s))
			}
		}
	}
	generic := func(s Symbol) bool { return strings.HasPrefix(s.Name, "_R") } // found by its short name
	if whole != nil && (!slices.ContainsFunc(out, generic) || slices.ContainsFunc(whole, generic)) {
		out = whole // f() is that, and not f[abi:cxx11]() too
	}
	return orderSymbols(out)
}

// readableMatch says how a wanted name is one of a symbol's readable forms.
type readableMatch uint8

const (
	_ readableMatch = iota // it is none
	matches
	matchesWhole
)

func holdsAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) && !strings.Contains(s, "_"+withoutLength(w)) {
			return false // Rust's old mangling loses the underscore of "_mm_or_si128"
		}
	}
	return true
}

// nameHits are the places in a table's names that hold some text, ascending:
// from where the string starts that holds it, to where the text was found last
// in it. A symbol's name may start inside a string, whose tail it is.
type nameHits [][2]uint32

// holding finds the names that hold a text; the empty text is in all of them.
func (t *table) holding(text string) nameHits {
	if text == "" {
		return nameHits{{0, ^uint32(0)}}
	}
	return appendHits(appendHits(nil, t.names, text, 0), t.more, text, len(t.names))
}

// appendHits adds the places in names that hold a text; names begin at an offset.
func appendHits(out nameHits, names, text string, base int) nameHits {
	for at := 0; ; {
		i := strings.Index(names[at:], text)
		if i < 0 {
			return out
		}
		i += at
		start := strings.LastIndexByte(names[:i], 0) + 1
		end := len(names)
		if n := strings.IndexByte(names[i:], 0); n >= 0 {
			end = i + n
		}
		last := i + strings.LastIndex(names[i:end], text)
		out = append(out, [2]uint32{uint32(base + start), uint32(base + last)})
		at = end
	}
}

// in reports whether the name that starts at off holds the text.
func (h nameHits) in(off uint32) bool {
	lo, hi := 0, len(h)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); h[mid][1] < off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(h) && h[lo][0] <= off
}

// orderSymbols puts the symbol that a name alone means first, and drops
// repeats: the same name at the same address in several tables. Of repeats the
// one that knows its version stays.
func orderSymbols(list []Symbol) []Symbol {
	rank := func(s Symbol) int {
		r := 0
		if s.Version != "" && !s.Default {
			r += 2
		}
		if s.Binding == Local {
			r++
		}
		return r
	}
	slices.SortStableFunc(list, func(x, y Symbol) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Vaddr, y.Vaddr),
			cmp.Compare(x.Name, y.Name), -cmp.Compare(x.Version, y.Version))
	})
	type key struct {
		name string
		at   Vaddr
		kind SymbolKind
	}
	seen := map[key]bool{}
	return slices.DeleteFunc(list, func(s Symbol) bool {
		k := key{s.Name, s.Vaddr, s.Kind}
		again := seen[k]
		seen[k] = true
		return again
	})
}
