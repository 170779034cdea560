package symbols

import (
	"bytes"
	"cmp"
	"debug/elf"
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// funcIndex is the functions of a file by address, one per address.
type funcIndex struct {
	list []funcEntry
}

// funcEntry is a function; end is the first address behind it.
type funcEntry struct {
	start, end Vaddr
	reach      Vaddr  // the largest end of this entry and all before it
	symbol     uint32 // in the table
	table      uint16
	several    bool // the address has several names
}

// functions builds the index.
func (f *File) functions() []funcEntry {
	return f.index.get(func() (out funcIndex) {
		var err error
		defer rescue(f.Path, &err)
		return funcIndex{f.buildIndex()}
	}).list
}

func (f *File) buildIndex() []funcEntry {
	tables := f.tables().list
	all := f.codeSymbols()
	at := func(c *codeSymbol) (*table, *rawSymbol) {
		t := tables[c.table]
		return t, &t.symbols[c.symbol]
	}
	starts := 0
	for i := 0; i < len(all); starts++ {
		j := i + 1
		for j < len(all) && all[j].start == all[i].start {
			j++
		}
		if j-i > 1 {
			slices.SortFunc(all[i:j], func(x, y codeSymbol) int {
				tx, sx := at(&x)
				ty, sy := at(&y)
				return compareAliases(tx, sx, ty, sy)
			})
		}
		i = j
	}
	// The best name of an address comes first. If it has no size, the size of another name is used. Labels
	// inside a function are not functions.
	out := make([]funcEntry, 0, starts)
	covered := Vaddr(0)
	for i := 0; i < len(all); {
		e := funcEntry{start: all[i].start, table: all[i].table, symbol: all[i].symbol}
		size := uint64(0)
		typed := false
		j := i
		for ; j < len(all) && all[j].start == e.start; j++ {
			t, s := at(&all[j])
			if size == 0 {
				size = s.size
			}
			typed = typed || s.typ() != elf.STT_NOTYPE
			if j > i && !e.several {
				first, one := at(&all[i])
				e.several = !sameText(t, s, first, one) && t.name(s) != first.name(one)
			}
		}
		i = j
		if !typed && size == 0 && e.start < covered {
			continue
		}
		if size > 0 {
			e.end = e.start + Vaddr(min(size, uint64(^e.start)))
			covered = max(covered, e.end)
		}
		out = append(out, e)
	}
	f.finish(out)
	return out
}

// codeSymbol is an entry of a symbol table that names code.
type codeSymbol struct {
	start  Vaddr
	symbol uint32 // in the table
	table  uint16
}

// codeSymbols lists them by address; those of one address are in the order of the tables.
func (f *File) codeSymbols() []codeSymbol {
	tables := f.tables().list
	n := 0
	for _, t := range tables {
		for i := range t.symbols {
			if f.isCode(t, &t.symbols[i]) {
				n++
			}
		}
	}
	all := make([]codeSymbol, 0, n)
	for ti, t := range tables {
		for i := range t.symbols {
			if s := &t.symbols[i]; f.isCode(t, s) {
				all = append(all, codeSymbol{start: s.vaddr, table: uint16(ti), symbol: uint32(i)})
			}
		}
	}
	slices.SortFunc(all, func(x, y codeSymbol) int {
		switch {
		case x.start != y.start:
			return cmp.Compare(x.start, y.start)
		case x.table != y.table:
			return cmp.Compare(x.table, y.table)
		}
		return cmp.Compare(x.symbol, y.symbol)
	})
	return all
}

// finish sets the ends of functions without a size, limits ends to the section, and sets reach. A function
// without a size ends where the next begins, also one that has no name and is a range of unwinding information.
func (f *File) finish(list []funcEntry) {
	ranges := f.fdes()
	reach := Vaddr(0)
	for i := range list {
		e := &list[i]
		limit, _ := f.codeAt(e.start)
		if e.end == 0 {
			e.end = limit.end
			if i+1 < len(list) {
				e.end = min(e.end, list[i+1].start)
			}
			next := sort.Search(len(ranges), func(i int) bool { return ranges[i].start > e.start })
			if next < len(ranges) {
				e.end = min(e.end, ranges[next].start)
			}
			if next > 0 && ranges[next-1].start == e.start {
				e.end = min(e.end, ranges[next-1].end)
			}
		}
		e.end = min(e.end, limit.end)
		reach = max(reach, e.end)
		e.reach = reach
	}
}

// isCode reports whether the entry names code of this file.
func (f *File) isCode(t *table, s *rawSymbol) bool {
	if !s.named() {
		return false
	}
	switch s.typ() {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
	case elf.STT_NOTYPE:
		if n := t.name(s); n == "" || n[0] == '$' || strings.HasPrefix(n, ".L") {
			return false // mapping symbols and labels of the compiler
		}
	default:
		return false
	}
	_, ok := f.codeAt(s.vaddr)
	return ok
}

// compareAliases orders the names of one address, the one to print first:
// typed before untyped, exported before local, current versions before old
// ones, fewer leading underscores, shorter, and then by the alphabet.
func compareAliases(tx *table, x *rawSymbol, ty *table, y *rawSymbol) int {
	rank := func(s *rawSymbol) int {
		r := 0
		if s.typ() == elf.STT_NOTYPE {
			r += 8
		}
		if elf.ST_BIND(s.info) == elf.STB_LOCAL {
			r += 4
		}
		if s.hidden {
			r += 2
		}
		return r
	}
	if c := cmp.Compare(rank(x), rank(y)); c != 0 {
		return c
	}
	if sameText(tx, x, ty, y) {
		return cmp.Compare(tx.rank(), ty.rank())
	}
	nx, ny := tx.name(x), ty.name(y)
	return cmp.Or(
		cmp.Compare(underscores(nx), underscores(ny)),
		cmp.Compare(len(nx), len(ny)),
		cmp.Compare(nx, ny),
		cmp.Compare(tx.rank(), ty.rank()),
	)
}

// rank puts the dynamic table first: its entries have versions.
func (t *table) rank() int {
	if t.dynamic {
		return 0
	}
	return 1
}

func underscores(s string) int {
	if strings.HasPrefix(s, "_Z") || strings.HasPrefix(s, "_R") {
		return 0
	}
	return len(s) - len(strings.TrimLeft(s, "_"))
}

// entryAt finds the function of the index that holds the address, or -1.
func entryAt(list []funcEntry, v Vaddr) int {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); list[mid].start <= v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	// If functions are nested, the innermost is found. The search is bounded, because a hostile file could
	// nest all its functions.
	for i, steps := lo-1, 0; i >= 0 && list[i].reach > v && steps < 256; i, steps = i-1, steps+1 {
		if v < list[i].end {
			return i
		}
	}
	return -1
}

// Certain reports whether a function certainly starts at the address, because a typed symbol or
// unwinding information says so. A label without a type may name data among code.
func (f *File) Certain(v Vaddr) bool {
	if r, ok := fdeAt(f.fdes(), v); ok && r.start == v {
		return true
	}
	list := f.functions()
	i := entryAt(list, v)
	if i < 0 || list[i].start != v {
		return false
	}
	return f.tables().list[list[i].table].symbols[list[i].symbol].typ() != elf.STT_NOTYPE
}

// fdeAt finds the range that holds the address.
func fdeAt(list []fde, v Vaddr) (fde, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].start > v }) - 1
	if i < 0 || v >= list[i].end {
		return fde{}, false
	}
	return list[i], true
}

// FuncAt returns the function that contains the address: by its symbol, or else the PLT stub,
// or else the range of unwinding information, named FDE_0xSTART, or _start at the entry point.
// ok is false if none of these knows the address.
func (f *File) FuncAt(v Vaddr) (fn Func, ok bool) {
	list := f.functions()
	if i := entryAt(list, v); i >= 0 {
		return f.function(&list[i]), true
	}
	if s, ok := stubAt(f.pltByAddress(), v); ok {
		return Func{Symbol: s, Start: s.Vaddr, End: s.Vaddr + Vaddr(s.Size)}, true
	}
	if r, found := fdeAt(f.fdes(), v); found && f.Executable(v) {
		return f.fdeFunc(r), true
	}
	return Func{}, false
}

// StartAt returns where the function starts that FuncAt returns, and takes less time.
func (f *File) StartAt(v Vaddr) (start Vaddr, ok bool) {
	list := f.functions()
	if i := entryAt(list, v); i >= 0 {
		return list[i].start, true
	}
	if s, ok := stubAt(f.pltByAddress(), v); ok {
		return s.Vaddr, true
	}
	if r, found := fdeAt(f.fdes(), v); found && f.Executable(v) {
		return r.start, true
	}
	return 0, false
}

// stubAt finds the PLT stub that holds the address.
func stubAt(stubs []Symbol, v Vaddr) (Symbol, bool) {
	i := sort.Search(len(stubs), func(i int) bool { return stubs[i].Vaddr > v-min(v, mostStub) })
	for ; i < len(stubs) && stubs[i].Vaddr <= v; i++ {
		if uint64(v-stubs[i].Vaddr) < stubs[i].Size {
			return stubs[i], true
		}
	}
	return Symbol{}, false
}

func (f *File) function(e *funcEntry) Func {
	t := f.tables().list[e.table]
	return Func{Symbol: f.symbol(t, &t.symbols[e.symbol]), Start: e.start, End: e.end}
}

// fdeFunc makes a function of a range without a name.
func (f *File) fdeFunc(r fde) Func {
	s := Symbol{Name: fdeName(r.start), Vaddr: r.start, Size: uint64(r.end - r.start), Kind: KindFDE}
	if r.start == f.im.entry {
		s.Name, s.Kind = "_start", KindEntry
	}
	return Func{Symbol: s, Start: r.start, End: r.end}
}

func fdeName(v Vaddr) string { return "FDE_" + v.String() }

// parseFDEName is the reverse of fdeName.
func parseFDEName(name string) (Vaddr, bool) {
	hex, ok := strings.CutPrefix(name, "FDE_0x")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(hex, 16, 64)
	return Vaddr(v), err == nil
}

// Funcs lists the functions of the file by address: one per address, under
// the name that FuncAt gives, and those without a name that unwinding
// information delimits. PLT stubs and signal trampolines without a name are not
// among them.
func (f *File) Funcs() []Func {
	return slices.AppendSeq(make([]Func, 0, len(f.functions())), f.EachFunc())
}

// EachFunc yields what Funcs lists, without making a list.
func (f *File) EachFunc() iter.Seq[Func] {
	return func(yield func(Func) bool) {
		f.eachFunc(func(e *funcEntry) bool { return yield(f.function(e)) }, func(r fde) bool { return yield(f.fdeFunc(r)) })
	}
}

// EachExtent yields the Start and End of what EachFunc yields, and takes less time.
func (f *File) EachExtent() iter.Seq2[Vaddr, Vaddr] {
	return func(yield func(start, end Vaddr) bool) {
		f.eachFunc(func(e *funcEntry) bool { return yield(e.start, e.end) }, func(r fde) bool { return yield(r.start, r.end) })
	}
}

// eachFunc calls one of two functions for each of Funcs, until it returns false.
func (f *File) eachFunc(named func(*funcEntry) bool, unnamed func(fde) bool) {
	list, ranges := f.functions(), f.fdes()
	i := 0
	for _, r := range ranges {
		for ; i < len(list) && list[i].start <= r.start; i++ {
			if !named(&list[i]) {
				return
			}
		}
		if f.unnamed(r) && !unnamed(r) {
			return
		}
	}
	for ; i < len(list); i++ {
		if !named(&list[i]) {
			return
		}
	}
}

// unnamed reports whether a range of unwinding information is a function without a name.
func (f *File) unnamed(r fde) bool {
	return entryAt(f.functions(), r.start) < 0 && f.Executable(r.start) && !f.inPLT(r.start) && !f.beforeSignalReturn(r.start)
}

// beforeSignalReturn reports whether the address is that of the byte before a
// signal trampoline: its range of unwinding information begins there, as unwinders
// look a return address up one byte before it (glibc, libc_sigaction.c). No
// function does.
func (f *File) beforeSignalReturn(v Vaddr) bool {
	code, err := f.Text(v+1, len(signalReturn))
	return err == nil && bytes.Equal(code, signalReturn)
}

// inPLT reports whether the address lies in a section of PLT stubs.
func (f *File) inPLT(v Vaddr) bool { return strings.HasPrefix(f.Section(v), ".plt") }
