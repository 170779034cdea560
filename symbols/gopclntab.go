package symbols

import (
	"debug/elf"
	"encoding/binary"
)

// The first words of Go's function table (internal/abi/symtab.go in Go's
// source): of 1.18 and 1.19, and since 1.20. Both keep addresses as 32-bit
// distances from the start of the text.
const (
	goMagic118 = 0xfffffff0
	goMagic120 = 0xfffffff1
)

// goTable reads the names that Go's runtime carries in every binary, stripped
// or not, as a symbol table; nil when there are none. Sizes are the distances
// to the next function: padding counts as the function before it.
func (im *image) goTable() *table {
	s := im.section(".gopclntab")
	if s == nil {
		s = im.section(".data.rel.ro.gopclntab") // position-independent, before 1.26
	}
	b, err := im.data(s)
	if err != nil || len(b) < 72 {
		return nil
	}
	le := binary.LittleEndian
	if m := le.Uint32(b); m != goMagic118 && m != goMagic120 || b[7] != 8 {
		return nil
	}
	n, text := le.Uint64(b[8:]), Vaddr(le.Uint64(b[24:]))
	names, funcs := le.Uint64(b[32:]), le.Uint64(b[64:])
	if names > uint64(len(b)) || funcs > uint64(len(b)) || n > maxSymbols || n*8+4 > uint64(len(b))-funcs {
		return nil
	}
	if sec := im.section(".text"); sec != nil && (text == 0 || im.load(text) == nil) {
		// Since 1.26 the linker leaves it out, and in position-independent
		// files it is a relocation.
		text = sec.addr
	}
	tab := b[funcs:]
	// A symbol's name is an offset from the start of names; 0 means none
	// there, so the section is kept whole and offsets are from its start.
	t := &table{names: string(b), symbols: make([]rawSymbol, 1, n+1)}
	for i := range n {
		start, at := le.Uint32(tab[i*8:]), uint64(le.Uint32(tab[i*8+4:]))
		next := le.Uint32(tab[i*8+8:])
		if at+8 > uint64(len(tab)) || next < start {
			continue
		}
		name := names + uint64(le.Uint32(tab[at+4:]))
		if name >= uint64(len(b)) {
			continue
		}
		t.symbols = append(t.symbols, rawSymbol{
			vaddr: text + Vaddr(start), size: uint64(next - start), name: uint32(name),
			info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), shndx: 1,
		})
	}
	return t
}
