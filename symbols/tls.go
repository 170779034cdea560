package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrNoTLS is wrapped by errors of TLS. It says that the place of a module's thread-local
// variables isn't known.
var ErrNoTLS = errors.New("its thread-local variables can't be found")

// TLSBlock says where a module's thread-local variables begin, in each thread.
type TLSBlock struct {
	// Static says that the variables are Offset bytes from the thread pointer.
	Static bool
	Offset int64
	// Otherwise their address is in the thread's vector of blocks, at Module, which is 0 where
	// it isn't known.
	Module uint64
	// Generation, if not 0, is the least generation of a thread's vector that has the
	// module. glibc keeps it in the vector's first word.
	Generation uint64
	// Musl says that the vector has musl's form: a count, then addresses. glibc's vector has
	// pairs of words, and the count two words before the first pair.
	Musl bool
}

// TLS finds the block of a module in a running process. It looks in glibc's list, or at what
// the dynamic linker has written for the module's own code: the number of its block
// (R_X86_64_DTPMOD64), a distance from the thread pointer (R_X86_64_TPOFF64), or either in a
// descriptor (R_X86_64_TLSDESC). See ELF Handling For Thread-Local Storage, 3.4.6 and 4.4, and
// Thread-Local Storage Descriptors for IA32 and AMD64/EM64T. Errors wrap ErrNoTLS.
func (s *Space) TLS(m *Module) (TLSBlock, error) {
	fail := func(why string) (TLSBlock, error) {
		return TLSBlock{}, fmt.Errorf("%s: %w: %s", m.Name, ErrNoTLS, why)
	}
	if s.pid == 0 {
		return fail("only a running process says where they are")
	}
	if _, ok := m.File.Segment(elf.PT_TLS); !ok {
		return fail("it has none")
	}
	switch out, ok, listed := s.glibcTLS(m); {
	case ok:
		return out, nil
	case listed:
		return fail("the dynamic linker is still loading it") // what is to be written is not there yet
	}
	if out, ok := s.relocatedTLS(m); ok {
		out.Musl = s.isMusl()
		return out, nil
	}
	return fail("its own code doesn't ask the dynamic linker for them")
}

// relocatedTLS looks at what the dynamic linker has written for a module.
func (s *Space) relocatedTLS(m *Module) (out TLSBlock, found bool) {
	dynsym, _, _ := m.File.SectionData(".dynsym")
	for _, section := range [...]string{".rela.dyn", ".rela.plt"} {
		rela, _, _ := m.File.SectionData(section)
		for ; len(rela) >= sizeofRela; rela = rela[sizeofRela:] {
			info := binary.LittleEndian.Uint64(rela[8:])
			typ := elf.R_X86_64(info & 0xffffffff)
			if typ != elf.R_X86_64_DTPMOD64 && typ != elf.R_X86_64_TPOFF64 && typ != elf.R_X86_64_TLSDESC {
				continue
			}
			value, own := ownSymbol(dynsym, info>>32)
			at := m.Addr(Vaddr(binary.LittleEndian.Uint64(rela)))
			word, ok := s.word(at)
			if !own || !ok {
				continue
			}
			value += binary.LittleEndian.Uint64(rela[16:])
			switch {
			case typ == elf.R_X86_64_TPOFF64:
				return TLSBlock{Static: true, Offset: int64(word - value)}, true
			case typ == elf.R_X86_64_TLSDESC:
				if d, ok := s.descriptor(at, Addr(word), value); ok && d.Static {
					return d, true
				} else if ok {
					out, found = d, true
				}
			case word != 0:
				out.Module, found = word, true
			}
		}
	}
	return out, found
}

// staticDescriptor is mov 8(%rax),%rax; ret. This code returns the second word of a descriptor
// whose block is at a fixed distance from the thread pointer.
var staticDescriptor = []byte{0x48, 0x8b, 0x40, 0x08, 0xc3}

// descriptor reads a TLS descriptor: a function's address and its argument. The argument is a
// distance from the thread pointer, or it points to a module's number and the variable's
// offset in its block, which must be value.
func (s *Space) descriptor(at, fn Addr, value uint64) (TLSBlock, bool) {
	arg, ok := s.word(at + 8)
	var code [9]byte
	if !ok || s.mem == nil {
		return TLSBlock{}, false
	}
	if n, err := s.mem.ReadMemory(code[:], fn); err != nil || n != len(code) {
		return TLSBlock{}, false
	}
	if bytes.HasPrefix(bytes.TrimPrefix(code[:], []byte{0xf3, 0x0f, 0x1e, 0xfa}), staticDescriptor) {
		return TLSBlock{Static: true, Offset: int64(arg - value)}, true
	}
	id, ok := s.word(Addr(arg))
	off, ok2 := s.word(Addr(arg) + 8)
	return TLSBlock{Module: id}, ok && ok2 && off == value && id != 0 && id < maxTLSModules
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
