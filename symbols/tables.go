package symbols

import (
	"cmp"
	"debug/elf"
	"slices"
	"sync/atomic"
)

// symbolTables are all tables that name a file's code, the best first: .symtab (its own or its
// debug file's), .dynsym, .gnu_debugdata, Go's table.
type symbolTables struct {
	list []*table
	dyn  *table // the dynamic table, which is also in list
	// stripped says that no table has the names of functions that aren't exported.
	stripped bool
	err      error // the first damage found
}

// tables reads the symbol tables.
func (f *File) tables() *symbolTables {
	f.symbols.get(func() (out symbolTables) {
		defer rescue(f.Path, &out.err)
		f.readTables(&out)
		return out
	})
	return &f.symbols.value
}

func (f *File) readTables(out *symbolTables) {
	note := func(err error) {
		if out.err == nil {
			out.err = err
		}
	}
	full, err := f.im.readTable(elf.SHT_SYMTAB)
	note(err)
	if full == nil {
		full = f.debugTable()
	}
	out.dyn, err = f.im.readTable(elf.SHT_DYNSYM)
	note(err)
	if out.dyn == nil && f.im.sections == nil {
		out.dyn, err = f.im.readDynamicTable(f.dyn)
		note(err)
	}
	if out.dyn != nil {
		f.im.readVersions(out.dyn)
	}
	if full != nil {
		out.list = append(out.list, full)
		if out.dyn != nil && len(out.dyn.names) > shareFrom {
			out.dyn.share(full)
		}
	}
	if out.dyn != nil {
		out.list = append(out.list, out.dyn)
	}
	if full != nil {
		return
	}
	if mini := f.miniTable(); mini != nil {
		out.list = append(out.list, mini)
	}
	names := f.im.goTable()
	if names != nil {
		out.list = append(out.list, names)
	}
	out.stripped = len(out.list) == 0 || len(out.list) == 1 && out.dyn != nil
}

// symbol converts an entry to its public form. Where a symbol without a type lies decides
// whether it is code or data.
func (f *File) symbol(t *table, s *rawSymbol) Symbol {
	sym := t.symbol(s)
	if s.typ() == elf.STT_NOTYPE {
		if _, ok := f.codeAt(s.vaddr); !ok {
			sym.Kind = KindObject
		}
	}
	return sym
}

// named reports whether an entry has an address and a name.
func (s *rawSymbol) named() bool {
	switch s.typ() {
	case elf.STT_SECTION, elf.STT_FILE:
		return false
	}
	return s.defined() && s.name != 0
}

// relocations reads the file's dynamic relocations.
func (f *File) relocations() []relocation {
	return f.relocs.get(func() (out []relocation) {
		var err error
		defer rescue(f.Path, &err)
		return f.im.relocations(f.dyn, f.tables().dyn)
	})
}

// plt finds the file's PLT stubs, by address.
func (f *File) plt() []Symbol {
	return f.stubs.get(func() (out []Symbol) {
		var err error
		defer rescue(f.Path, &err)
		return f.im.pltStubs(f.relocations())
	})
}

// pltByAddress is plt in order of address.
func (f *File) pltByAddress() []Symbol {
	return f.stubsByAddress.get(func() []Symbol {
		return slices.SortedStableFunc(slices.Values(f.plt()), func(a, b Symbol) int { return cmp.Compare(a.Vaddr, b.Vaddr) })
	})
}

// counter counts up; safe for concurrent use.
type counter struct{ n atomic.Int64 }

func (c *counter) next() int64 { return c.n.Add(1) }
