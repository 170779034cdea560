package bench

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// dataLayout is where the subject's writable memory lies.
type dataLayout struct {
	cpus                        int
	rings, tcbs, stacks, buffer uint64
	end                         uint64
}

// A ring's buffer, and how far the next one's is.
const bufferSize = ringSize + page

func layData(cpus int) *dataLayout {
	d := &dataLayout{cpus: cpus, rings: dataAt}
	at := uint64(dataAt)
	next := func(size int) uint64 {
		at += uint64(size+page-1) &^ (page - 1)
		return at
	}
	d.tcbs = next(cpus * ringBytes)
	d.stacks = next(maxThreads * tcbSize)
	// A thread's stack ends where its number's begins.
	d.buffer = next(maxThreads * stackSize)
	d.end = next(cpus * bufferSize)
	return d
}

// init gives the bytes that aren't zero: the rings' masks and buffers.
func (d *dataLayout) init() []byte {
	b := make([]byte, d.cpus*ringBytes)
	for i := range d.cpus {
		r := b[i*ringBytes:]
		binary.LittleEndian.PutUint64(r[ringMask:], ringSize-1)
		binary.LittleEndian.PutUint64(r[ringData:], d.buffer+uint64(i*bufferSize))
	}
	return b
}

// image gives the subject as an executable file with symbols.
func (s *subject) image() []byte {
	data := s.data.init()
	dataOff := (page + len(s.code) + page - 1) &^ (page - 1)

	names, syms := []byte{0}, make([]elf.Sym64, 1)
	for _, f := range s.funcs {
		syms = append(syms, elf.Sym64{
			Name: uint32(len(names)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: f.at, Size: f.size,
		})
		names = append(append(names, f.name...), 0)
	}
	info, abbrev := s.debugInfo()
	sections := []byte("\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00.debug_info\x00.debug_abbrev\x00.dynsym\x00.dynstr\x00.dynamic\x00")
	name := func(n string) uint32 { return uint32(bytes.Index(sections, []byte(n+"\x00"))) }
	symOff := dataOff + len(data)
	strOff := symOff + len(syms)*elf.Sym64Size
	shstrOff := strOff + len(names)
	infoOff := shstrOff + len(sections)
	abbrevOff := infoOff + len(info)
	shOff := (abbrevOff + len(abbrev) + 7) &^ 7

	var out bytes.Buffer
	put := func(at int, v any) {
		out.Write(make([]byte, at-out.Len()))
		_ = binary.Write(&out, binary.LittleEndian, v) // to a buffer, of fixed-size values
	}
	headings := []elf.Section64{
		{},
		{Name: name(".text"), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: textAt, Off: page, Size: uint64(len(s.code)), Addralign: 64},
		{Name: name(".symtab"), Type: uint32(elf.SHT_SYMTAB), Off: uint64(symOff), Size: uint64(strOff - symOff), Link: 3, Info: 1, Addralign: 8, Entsize: elf.Sym64Size},
		{Name: name(".strtab"), Type: uint32(elf.SHT_STRTAB), Off: uint64(strOff), Size: uint64(len(names)), Addralign: 1},
		{Name: name(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Off: uint64(shstrOff), Size: uint64(len(sections)), Addralign: 1},
		{Name: name(".debug_info"), Type: uint32(elf.SHT_PROGBITS), Off: uint64(infoOff), Size: uint64(len(info)), Addralign: 1},
		{Name: name(".debug_abbrev"), Type: uint32(elf.SHT_PROGBITS), Off: uint64(abbrevOff), Size: uint64(len(abbrev)), Addralign: 1},
	}
	if s.linked {
		headings = append(headings,
			section(name(".dynsym"), elf.SHT_DYNSYM, dynSymOff, elf.Sym64Size, len(headings)+1, elf.Sym64Size),
			section(name(".dynstr"), elf.SHT_STRTAB, dynStrOff, 1, 0, 0),
			section(name(".dynamic"), elf.SHT_DYNAMIC, dynamicOff, dynamicSize, len(headings)+1, 16))
	}
	programs := s.programs(dataOff, len(data))
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: s.entry,
		Phoff: headerSize, Shoff: uint64(shOff), Ehsize: headerSize, Phentsize: 56, Phnum: uint16(len(programs)), Shentsize: 64, Shnum: uint16(len(headings)), Shstrndx: 4,
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	put(0, h)
	put(headerSize, programs)
	if s.linked {
		put(linkOff, linking())
	}
	put(page, s.code)
	put(dataOff, data)
	put(symOff, syms)
	put(strOff, names)
	put(shstrOff, sections)
	put(infoOff, info)
	put(abbrevOff, abbrev)
	put(shOff, headings)
	return out.Bytes()
}

// headerSize is the size of an ELF file's header.
const headerSize = 64

// programs are the headers of the segments. The last page of the file's data
// goes on as memory.
func (s *subject) programs(dataOff, data int) []elf.Prog64 {
	const headersAt = textAt - page
	list := []elf.Prog64{
		// Whoever looks for a program's headers in its memory finds them here.
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Vaddr: headersAt, Paddr: headersAt, Filesz: page, Memsz: page, Align: page},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: page, Vaddr: textAt, Paddr: textAt, Filesz: uint64(len(s.code)), Memsz: uint64(len(s.code)), Align: page},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: uint64(dataOff), Vaddr: dataAt, Paddr: dataAt, Filesz: uint64(data), Memsz: s.data.end - dataAt, Align: page},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	}
	if !s.linked {
		return list
	}
	part := func(t elf.ProgType, off, size uint64) elf.Prog64 {
		return elf.Prog64{Type: uint32(t), Flags: uint32(elf.PF_R), Off: off, Vaddr: headersAt + off, Paddr: headersAt + off, Filesz: size, Memsz: size, Align: 8}
	}
	return append([]elf.Prog64{part(elf.PT_INTERP, linkOff, uint64(len(loader)))}, append(list, part(elf.PT_DYNAMIC, dynamicOff, dynamicSize))...)
}

// function is the address of a function; 0 if there is none of that name.
func (s *subject) function(name string) uint64 {
	for _, f := range s.funcs {
		if f.name == name {
			return f.at
		}
	}
	return 0
}
