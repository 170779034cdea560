package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// USDT is one place of a statically defined probe (sys/sdt.h): a no-op in the code that a note
// describes.
type USDT struct {
	Provider, Name string
	Args           string // as the note has them: "-4@%edi 8@-16(%rbp)"; "" is none
	Vaddr          Vaddr  // of the no-op
	// Semaphore is the address of a counter of 16 bits that is not 0 while somebody listens.
	// While it is 0, the program may skip the place. 0 means no semaphore.
	Semaphore Vaddr
}

// maxUSDTNotes limits the bytes of notes that are read from a file.
const maxUSDTNotes = 16 << 20

// String returns the probe's name as it is written in places: %PROVIDER:NAME.
func (u *USDT) String() string { return "%" + u.Provider + ":" + u.Name }

// USDT returns the file's statically defined probes, in the order of their notes. Addresses are
// the present ones even if the file was prelinked. Notes about addresses outside the file's
// code are omitted, and so is everything after a damaged note.
func (f *File) USDT() []USDT { return slices.Clone(f.usdt.get(f.readUSDT)) }

func (f *File) readUSDT() (out []USDT) {
	var err error
	defer rescue(f.Path, &err)
	moved := func(base Vaddr) Vaddr { return 0 }
	if s := f.im.section(".stapsdt.base"); s != nil {
		moved = func(base Vaddr) Vaddr {
			if base == 0 {
				return 0
			}
			return s.addr - base
		}
	}
	for i := range f.im.sections {
		s := &f.im.sections[i]
		if s.typ != elf.SHT_NOTE || s.name != ".note.stapsdt" || s.flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		b, err := f.im.bytes(s.off, min(s.size, maxUSDTNotes), "the notes of probes")
		if err == nil {
			out = append(out, usdtNotes(b, moved)...)
		}
	}
	return slices.DeleteFunc(out, func(u USDT) bool { return !f.Executable(u.Vaddr) })
}

// usdtNotes reads notes of the owner "stapsdt", type 3. A note has the addresses of the no-op,
// of the base section as it was linked, and of the semaphore, then provider, name and
// arguments, each ended by a zero byte. moved returns how far a base has moved since.
func usdtNotes(b []byte, moved func(base Vaddr) Vaddr) (out []USDT) {
	const head, ntStapsdt, addresses = 12, 3, 3 * 8
	le := binary.LittleEndian
	for len(b) >= head {
		namesz, descsz, typ := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		from := head + (namesz+3)&^3
		end := from + descsz
		if end > uint64(len(b)) {
			return out
		}
		owner, desc := b[head:head+namesz], b[from:end]
		b = b[min((end+3)&^3, uint64(len(b))):]
		if typ != ntStapsdt || string(owner) != "stapsdt\x00" || len(desc) < addresses {
			continue
		}
		texts := bytes.SplitN(desc[addresses:], []byte{0}, 4)
		if len(texts) < 4 || len(texts[0]) == 0 || len(texts[1]) == 0 {
			continue // one of the texts is empty or doesn't end
		}
		by := moved(Vaddr(le.Uint64(desc[8:])))
		u := USDT{Provider: string(texts[0]), Name: string(texts[1]), Args: string(texts[2]), Vaddr: Vaddr(le.Uint64(desc)) + by}
		if at := Vaddr(le.Uint64(desc[16:])); at != 0 {
			u.Semaphore = at + by
		}
		out = append(out, u)
	}
	return out
}
