package bench

import (
	"debug/elf"
	"encoding/binary"
)

// What a linked subject has in the page of its headers: the loader's name, and
// a table of dynamic symbols with the one that every table begins with, which
// needs no library.
const (
	loader      = "/lib64/ld-linux-x86-64.so.2\x00"
	linkOff     = 1024
	dynSymOff   = linkOff + 64
	dynStrOff   = dynSymOff + elf.Sym64Size
	dynHashOff  = dynStrOff + 8
	dynamicOff  = dynHashOff + 16
	dynamicSize = 6 * 16
)

// section heads a part of what lies in the page of the headers.
func section(name uint32, t elf.SectionType, off, size uint64, link int, each uint64) elf.Section64 {
	local := uint32(0)
	if t == elf.SHT_DYNSYM {
		local = 1
	}
	return elf.Section64{Name: name, Type: uint32(t), Flags: uint64(elf.SHF_ALLOC), Addr: textAt - page + off, Off: off, Size: size, Link: uint32(link), Info: local, Addralign: 8, Entsize: each}
}

// linking gives what lies in the file from linkOff on.
func linking() []byte {
	b := make([]byte, dynamicOff-linkOff)
	copy(b, loader)
	// A bucket and a chain, both of them ended by that symbol.
	copy(b[dynHashOff-linkOff:], []byte{1, 4: 1})
	for _, d := range []elf.Dyn64{
		{Tag: int64(elf.DT_HASH), Val: textAt - page + dynHashOff},
		{Tag: int64(elf.DT_STRTAB), Val: textAt - page + dynStrOff},
		{Tag: int64(elf.DT_STRSZ), Val: 1},
		{Tag: int64(elf.DT_SYMTAB), Val: textAt - page + dynSymOff},
		{Tag: int64(elf.DT_SYMENT), Val: elf.Sym64Size},
		{Tag: int64(elf.DT_NULL)},
	} {
		b = binary.LittleEndian.AppendUint64(b, uint64(d.Tag))
		b = binary.LittleEndian.AppendUint64(b, d.Val)
	}
	return b
}
