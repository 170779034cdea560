package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// relative is what the dynamic linker puts into a word by the file's place alone.
type relative struct{ slot, value Vaddr }

// Pointer returns the address in the word at v when the program starts: what the file has there, or the dynamic linker
// puts there by the file's place alone. ok is false if it isn't known or isn't an address of what the file loads.
// Safe for concurrent use.
func (f *File) Pointer(v Vaddr) (to Vaddr, ok bool) {
	list := f.relatives.get(func() (out []relative) {
		var err error
		defer rescue(f.Path, &err)
		f.eachRelative(func(slot, value Vaddr) { out = append(out, relative{slot, value}) })
		slices.SortFunc(out, func(a, b relative) int { return cmp.Compare(a.slot, b.slot) })
		return out
	})
	if i, there := slices.BinarySearchFunc(list, v, func(r relative, v Vaddr) int { return cmp.Compare(r.slot, v) }); there {
		to = list[i].value
	} else {
		s := f.im.load(v)
		if s == nil || s.filesz-uint64(v-s.vaddr) < 8 {
			return 0, false
		}
		var word [8]byte
		if _, err := f.im.r.ReadAt(word[:], int64(s.off)+int64(v-s.vaddr)); err != nil {
			return 0, false
		}
		to = Vaddr(binary.LittleEndian.Uint64(word[:]))
	}
	return to, to != 0 && f.im.load(to) != nil
}

// eachRelative visits what the dynamic linker puts into words by the file's place alone
// (R_X86_64_RELATIVE).
func (f *File) eachRelative(visit func(slot, value Vaddr)) {
	at, ok := f.dyn[elf.DT_RELA]
	if !ok {
		return
	}
	b, err := f.im.at(Vaddr(at), f.dyn[elf.DT_RELASZ], "the relocations")
	le := binary.LittleEndian
	for ; err == nil && len(b) >= sizeofRela; b = b[sizeofRela:] {
		if elf.R_X86_64(le.Uint64(b[8:])) == elf.R_X86_64_RELATIVE {
			visit(Vaddr(le.Uint64(b)), Vaddr(le.Uint64(b[16:])))
		}
	}
}
