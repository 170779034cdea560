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
	funcs := im.goFuncs()
	if funcs.n == 0 {
		return nil
	}
	le := binary.LittleEndian
	b := funcs.b
	// A symbol's name is an offset from the start of names; 0 means none
	// there, so the section is kept whole and offsets are from its start.
	t := &table{names: string(b), symbols: make([]rawSymbol, 1, funcs.n+1)}
	for i := range funcs.n {
		start, next, at := funcs.at(i)
		if at+8 > uint64(len(funcs.tab)) || next < start {
			continue
		}
		name := funcs.names + uint64(le.Uint32(funcs.tab[at+4:]))
		if name >= uint64(len(b)) {
			continue
		}
		t.symbols = append(t.symbols, rawSymbol{
			vaddr: start, size: uint64(next - start), name: uint32(name),
			info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), shndx: 1,
		})
	}
	return t
}
