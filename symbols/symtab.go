package symbols

import (
	"debug/elf"
	"encoding/binary"
	"strings"
)

// rawSymbol is an entry of a symbol table. It is kept small because large files have several
// hundred thousand.
type rawSymbol struct {
	vaddr  Vaddr
	size   uint64
	name   uint32 // offset for table.text; 0 means no name
	file   uint32 // offset of the STT_FILE name that a local symbol follows; 0 means none
	info   byte   // type and binding, as in the file
	hidden bool   // the version is not the default one
	// protected says that the file itself uses this symbol, whatever other files export.
	protected bool
	shndx     uint16
	version   uint16 // index in table.versions
}

func (s rawSymbol) typ() elf.SymType { return elf.ST_TYPE(s.info) }

// defined reports whether the symbol has an address in this file.
func (s rawSymbol) defined() bool { return s.shndx != uint16(elf.SHN_UNDEF) }

// table is a symbol table with its names.
type table struct {
	names    string
	more     string      // names that follow those of the file: see share
	shares   *table      // the table whose names these are; nil: its own
	symbols  []rawSymbol // as in the file, the first (null) entry included
	versions []version   // by version index; 0 and 1 have no name
	dynamic  bool
}

// version is a version name that exported symbols carry.
type version struct {
	name string
	own  bool // the file defines the version; otherwise it needs it from another file
}

// name returns the symbol's name as in the file, perhaps followed by @VERSION.
func (t *table) name(s *rawSymbol) string { return stringAt(t.text(s.name), 0) }

// sameText reports whether two entries certainly have the same name as in the file: they share it.
func sameText(tx *table, x *rawSymbol, ty *table, y *rawSymbol) bool {
	return x.name == y.name && (tx == ty || (tx.shares == ty || ty.shares == tx) && uint64(x.name) < uint64(len(tx.names)))
}

// text returns the text at an offset of the names.
func (t *table) text(off uint32) string {
	at := uint64(off)
	if at < uint64(len(t.names)) {
		return t.names[at:]
	}
	if at -= uint64(len(t.names)); at < uint64(len(t.more)) {
		return t.more[at:]
	}
	return ""
}

func stringAt(names string, off uint32) string {
	if uint64(off) >= uint64(len(names)) {
		return ""
	}
	rest := names[off:]
	if i := strings.IndexByte(rest, 0); i >= 0 {
		return rest[:i]
	}
	return ""
}

// is reports whether the symbol has the given name, ignoring its version.
func (t *table) is(s *rawSymbol, name string) bool {
	text := t.text(s.name)
	if len(name) >= len(text) {
		return false
	}
	end := text[len(name)]
	return (end == 0 || end == '@') && text[:len(name)] == name
}

// symbol converts an entry to its public form.
func (t *table) symbol(s *rawSymbol) Symbol {
	sym := Symbol{Name: t.name(s), Vaddr: s.vaddr, Size: s.size}
	if i := strings.IndexByte(sym.Name, '@'); i > 0 {
		sym.Default = strings.HasPrefix(sym.Name[i:], "@@")
		sym.Version = strings.TrimLeft(sym.Name[i:], "@")
		sym.Name = sym.Name[:i]
	} else if s.version > 1 && int(s.version) < len(t.versions) {
		v := t.versions[s.version]
		sym.Version = v.name
		sym.Default = !s.hidden && v.own && v.name != ""
	}
	switch elf.ST_BIND(s.info) {
	case elf.STB_LOCAL:
		sym.Binding = Local
		sym.File = stringAt(t.text(s.file), 0)
	case elf.STB_WEAK:
		sym.Binding = Weak
	default:
		sym.Binding = Global
	}
	switch s.typ() {
	case elf.STT_OBJECT, elf.STT_COMMON:
		sym.Kind = KindObject
	case elf.STT_TLS:
		sym.Kind = KindTLS
	case elf.STT_GNU_IFUNC:
		sym.Kind = KindIFunc
	}
	return sym
}

// readTable reads .symtab or .dynsym by its section header. It returns nil if there is none.
func (im *image) readTable(typ elf.SectionType) (*table, error) {
	for i := range im.sections {
		s := &im.sections[i]
		if s.typ != typ || s.link >= uint32(len(im.sections)) {
			continue
		}
		n, err := im.plain(s)
		if err != nil {
			return nil, err
		}
		strs := &im.sections[s.link]
		size, err := im.plain(strs)
		if err != nil {
			return nil, err
		}
		t, err := im.makeTable(s.off, n/sizeofSym, strs.off, size, "section "+s.name)
		if err != nil {
			return nil, err
		}
		t.dynamic = typ == elf.SHT_DYNSYM
		im.dropOffsets(t)
		return t, nil
	}
	return nil, nil
}

// dropOffsets makes untyped symbols undefined if their value is not an address but an offset
// in a section that isn't loaded. GCC's link-time optimization makes such symbols in
// .debug_info. They are named after source files, and look as if they were inside functions.
func (im *image) dropOffsets(t *table) {
	for i := range t.symbols {
		s := &t.symbols[i]
		if s.typ() == elf.STT_NOTYPE && int(s.shndx) < len(im.sections) && s.shndx < uint16(elf.SHN_LORESERVE) &&
			im.sections[s.shndx].flags&elf.SHF_ALLOC == 0 {
			s.shndx = uint16(elf.SHN_UNDEF)
		}
	}
}

// readDynamicTable reads the dynamic symbols through the dynamic section, for files without
// section headers.
func (im *image) readDynamicTable(dyn map[elf.DynTag]uint64) (*table, error) {
	n := im.dynSymbolCount(dyn)
	if n == 0 || n > maxSymbols {
		return nil, nil
	}
	const what = "the dynamic symbols"
	off, size, err := im.place(Vaddr(dyn[elf.DT_SYMTAB]), n*sizeofSym, what)
	if err != nil {
		return nil, err
	}
	strs, length, err := im.place(Vaddr(dyn[elf.DT_STRTAB]), dyn[elf.DT_STRSZ], what)
	if err != nil {
		return nil, err
	}
	t, err := im.makeTable(off, size/sizeofSym, strs, length, what)
	if err != nil {
		return nil, err
	}
	t.dynamic = true
	return t, nil
}

// makeTable reads n symbols at off, and their names: size bytes at strs.
func (im *image) makeTable(off Off, n uint64, strs Off, size uint64, what string) (*table, error) {
	n = min(n, maxSymbols)
	if err := im.holds(off, n*sizeofSym, what); err != nil {
		return nil, err
	}
	names, err := im.text(strs, size, "the names of "+what)
	if err != nil {
		return nil, err
	}
	t := &table{names: names, symbols: make([]rawSymbol, n)}
	const most = readSize / sizeofSym // symbols read at once
	b := make([]byte, min(n, most)*sizeofSym)
	file := uint32(0)
	for rest := t.symbols; len(rest) > 0; {
		some := rest[:min(len(rest), most)]
		b = b[:len(some)*sizeofSym]
		if err := im.fill(b, off, what); err != nil {
			return nil, err
		}
		file = decodeSymbols(some, b, file)
		rest, off = rest[len(some):], off+Off(len(b))
	}
	return t, nil
}

// decodeSymbols decodes symbols from their entries b. file is the STT_FILE name that applies
// before them. It returns the one that applies after them.
func decodeSymbols(to []rawSymbol, b []byte, file uint32) uint32 {
	le := binary.LittleEndian
	for i := range to {
		e := b[i*sizeofSym:][:sizeofSym]
		s := &to[i]
		*s = rawSymbol{
			name: le.Uint32(e), info: e[4], shndx: le.Uint16(e[6:]),
			vaddr: Vaddr(le.Uint64(e[8:])), size: le.Uint64(e[16:]),
			protected: elf.ST_VISIBILITY(e[5]) == elf.STV_PROTECTED,
		}
		if elf.ST_BIND(s.info) != elf.STB_LOCAL {
			continue
		}
		if s.typ() == elf.STT_FILE {
			file = s.name
		} else {
			s.file = file
		}
	}
	return file
}

// readVersions sets the versions of the dynamic symbols (LSB, "Symbol Versioning"). After
// damage, the remaining symbols have no version.
func (im *image) readVersions(t *table) {
	vers := im.sectionOf(elf.SHT_GNU_VERSYM)
	b, err := im.data(vers)
	if err != nil || b == nil {
		return
	}
	le := binary.LittleEndian
	for i := range t.symbols {
		if len(b) < 2*i+2 {
			break
		}
		v := le.Uint16(b[2*i:])
		t.symbols[i].version, t.symbols[i].hidden = v&0x7fff, v&0x8000 != 0
	}
	im.readVersionNames(t, elf.SHT_GNU_VERDEF)
	im.readVersionNames(t, elf.SHT_GNU_VERNEED)
}

func (im *image) sectionOf(typ elf.SectionType) *section {
	for i := range im.sections {
		if im.sections[i].typ == typ {
			return &im.sections[i]
		}
	}
	return nil
}

// readVersionNames walks the chains of Verdef or Verneed records. Both have
// the offset of their first auxiliary record and of the next record last.
func (im *image) readVersionNames(t *table, typ elf.SectionType) {
	s := im.sectionOf(typ)
	b, err := im.data(s)
	if err != nil || b == nil {
		return
	}
	le := binary.LittleEndian
	set := func(index uint16, name uint32) {
		index &= 0x7fff
		for len(t.versions) <= int(index) {
			t.versions = append(t.versions, version{})
		}
		t.versions[index] = version{strings.Clone(stringAt(t.names, name)), typ == elf.SHT_GNU_VERDEF}
	}
	auxAt, nextAt, size := 12, 16, 20 // Verdef
	if typ == elf.SHT_GNU_VERNEED {
		auxAt, nextAt, size = 8, 12, 16
	}
	for at, n := uint64(0), 0; at+uint64(size) <= uint64(len(b)) && n <= 0x8000; n++ {
		rec := b[at:]
		aux := at + uint64(le.Uint32(rec[auxAt:]))
		if typ == elf.SHT_GNU_VERDEF {
			if aux+8 <= uint64(len(b)) {
				set(le.Uint16(rec[4:]), le.Uint32(b[aux:]))
			}
		} else {
			for k := le.Uint16(rec[2:]); k > 0 && aux+16 <= uint64(len(b)); k-- {
				set(le.Uint16(b[aux+6:]), le.Uint32(b[aux+8:]))
				next := uint64(le.Uint32(b[aux+12:]))
				if next == 0 {
					break
				}
				aux += next
			}
		}
		next := uint64(le.Uint32(rec[nextAt:]))
		if next == 0 {
			return
		}
		at += next
	}
}
