package symbols

import (
	"debug/elf"
	"encoding/binary"
)

// relocation is one of the dynamic linker's tasks that put a function's
// address, a variable's copy, or where a thread-local variable is, somewhere.
type relocation struct {
	typ    elf.R_X86_64
	slot   Vaddr  // where
	name   string // of the symbol; "" when there is none
	addend Vaddr
}

// relocations reads those of the loaded file that name a symbol or an IFUNC
// resolver; R_X86_64_RELATIVE, the bulk, is left out. table is the dynamic
// symbol table.
func (im *image) relocations(dyn map[elf.DynTag]uint64, table *table) []relocation {
	var out []relocation
	read := func(b []byte) {
		le := binary.LittleEndian
		for ; len(b) >= sizeofRela; b = b[sizeofRela:] {
			info := le.Uint64(b[8:])
			r := relocation{typ: elf.R_X86_64(info & 0xffffffff), slot: Vaddr(le.Uint64(b)), addend: Vaddr(le.Uint64(b[16:]))}
			switch r.typ {
			case elf.R_X86_64_JMP_SLOT, elf.R_X86_64_GLOB_DAT, elf.R_X86_64_64, elf.R_X86_64_COPY, elf.R_X86_64_IRELATIVE,
				elf.R_X86_64_DTPMOD64, elf.R_X86_64_TPOFF64, elf.R_X86_64_TLSDESC:
			default:
				continue
			}
			if i := info >> 32; table != nil && i > 0 && i < uint64(len(table.symbols)) {
				r.name = table.name(&table.symbols[i])
			}
			out = append(out, r)
		}
	}
	seen := map[Off]bool{}
	for i := range im.sections {
		s := &im.sections[i]
		if s.typ != elf.SHT_RELA || s.flags&elf.SHF_ALLOC == 0 {
			continue
		}
		if b, err := im.data(s); err == nil {
			seen[s.off] = true
			read(b)
		}
	}
	if len(seen) > 0 {
		return out
	}
	for _, t := range [...][2]elf.DynTag{{elf.DT_RELA, elf.DT_RELASZ}, {elf.DT_JMPREL, elf.DT_PLTRELSZ}} {
		if at, ok := dyn[t[0]]; ok {
			if b, err := im.at(Vaddr(at), dyn[t[1]], "the relocations"); err == nil {
				read(b)
			}
		}
	}
	return out
}

const mostStub = 16 // bytes of a PLT stub, at most

// pltStubs finds the stubs of the PLT sections: code that jumps through a slot
// which a relocation fills with a named function's address. endbr64 and bnd
// may stand before the jump.
func (im *image) pltStubs(relocs []relocation) []Symbol {
	slots := map[Vaddr]string{}
	for _, r := range relocs {
		if (r.typ == elf.R_X86_64_JMP_SLOT || r.typ == elf.R_X86_64_GLOB_DAT) && r.name != "" {
			slots[r.slot] = r.name
		}
	}
	if len(slots) == 0 {
		return nil
	}
	var out []Symbol
	for _, name := range [...]string{".plt", ".plt.sec", ".plt.got"} {
		s := im.section(name)
		b, err := im.data(s)
		if err != nil || b == nil {
			continue
		}
		step := mostStub
		if name == ".plt.got" && s.entsize == 8 {
			step = 8
		}
		for at := 0; at+step <= len(b); at += step {
			slot, ok := jumpSlot(b[at:at+step], s.addr+Vaddr(at))
			if f := slots[slot]; ok && f != "" {
				out = append(out, Symbol{Name: f + "@plt", Vaddr: s.addr + Vaddr(at), Size: uint64(step), Kind: KindPLT, Binding: Local})
			}
		}
	}
	return out
}

// jumpSlot is the slot that the stub's jmp *disp(%rip) reads.
func jumpSlot(b []byte, at Vaddr) (Vaddr, bool) {
	i := 0
	if len(b) >= 4 && string(b[:4]) == "\xf3\x0f\x1e\xfa" { // endbr64
		i = 4
	}
	if i < len(b) && b[i] == 0xf2 { // bnd
		i++
	}
	if i+6 > len(b) || b[i] != 0xff || b[i+1] != 0x25 {
		return 0, false
	}
	disp := int32(binary.LittleEndian.Uint32(b[i+2:]))
	return at + Vaddr(i+6) + Vaddr(int64(disp)), true
}
