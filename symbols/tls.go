package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrNoTLS is wrapped by TLS's errors: where a module has its thread-local
// variables can't be told.
var ErrNoTLS = errors.New("its thread-local variables can't be found")

// TLSBlock says where a module's thread-local variables begin, in each thread.
type TLSBlock struct {
	// Static says that they are Offset bytes from the thread pointer.
	Static bool
	Offset int64
	// Else their address is in the thread's vector of blocks, at Module.
	Module uint64
	// Musl says that the vector is of musl's form: a count, then addresses.
	// glibc's has pairs of words, and the count two words before the first.
	Musl bool
}

// TLS finds the block of a module of a running process by what the dynamic
// linker has written for the module's own code: the number of its block
// (R_X86_64_DTPMOD64), or a distance from the thread pointer (R_X86_64_TPOFF64).
// See ELF Handling For Thread-Local Storage, 3.4.6 and 4.4. Errors wrap ErrNoTLS.
func (s *Space) TLS(m *Module) (TLSBlock, error) {
	fail := func(why string) (TLSBlock, error) {
		return TLSBlock{}, fmt.Errorf("%s: %w: %s", m.Name, ErrNoTLS, why)
	}
	if s.pid == 0 {
		return fail("only a running process tells where")
	}
	if _, ok := m.File.Segment(elf.PT_TLS); !ok {
		return fail("it has none")
	}
	dynsym, _, _ := m.File.SectionData(".dynsym")
	out, found := TLSBlock{Musl: s.isMusl()}, false
	rela, _, _ := m.File.SectionData(".rela.dyn")
	for ; len(rela) >= sizeofRela; rela = rela[sizeofRela:] {
		info := binary.LittleEndian.Uint64(rela[8:])
		typ := elf.R_X86_64(info & 0xffffffff)
		if typ != elf.R_X86_64_DTPMOD64 && typ != elf.R_X86_64_TPOFF64 {
			continue
		}
		value, own := ownSymbol(dynsym, info>>32)
		word, ok := s.word(m.Addr(Vaddr(binary.LittleEndian.Uint64(rela))))
		switch {
		case !own || !ok:
		case typ == elf.R_X86_64_TPOFF64:
			out.Static = true
			out.Offset = int64(word - value - binary.LittleEndian.Uint64(rela[16:]))
			return out, nil
		case word != 0:
			out.Module, found = word, true
		}
	}
	if !found {
		return fail("its own code doesn't ask the dynamic linker for them")
	}
	return out, nil
}

// ownSymbol is the value of a dynamic symbol that the module defines itself; 0
// stands for the block's start.
func ownSymbol(dynsym []byte, i uint64) (value uint64, own bool) {
	if i == 0 {
		return 0, true
	}
	if i >= uint64(len(dynsym))/elf.Sym64Size {
		return 0, false
	}
	sym := dynsym[i*elf.Sym64Size:]
	return binary.LittleEndian.Uint64(sym[8:]), binary.LittleEndian.Uint16(sym[6:]) != uint16(elf.SHN_UNDEF)
}

// isMusl reports whether the program asks for musl's dynamic linker.
func (s *Space) isMusl() bool {
	for _, m := range s.Modules() {
		if m.Main && m.File != nil {
			interp, _, _ := m.File.SectionData(".interp")
			return bytes.Contains(interp, []byte("/ld-musl"))
		}
	}
	return false
}
