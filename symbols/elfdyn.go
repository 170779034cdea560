package symbols

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
)

// dynamic reads the entries of the dynamic section that have a meaning here;
// a tag that occurs twice keeps its first value.
func (im *image) dynamic() map[elf.DynTag]uint64 {
	seg := im.segmentOf(elf.PT_DYNAMIC)
	if seg == nil {
		return nil
	}
	b, err := im.bytes(seg.off, min(seg.filesz, maxNoteBytes), "the dynamic section")
	if err != nil {
		return nil
	}
	le := binary.LittleEndian
	tags := map[elf.DynTag]uint64{}
	for ; len(b) >= 16; b = b[16:] {
		t := elf.DynTag(le.Uint64(b))
		if t == elf.DT_NULL {
			break
		}
		if _, ok := tags[t]; !ok {
			tags[t] = le.Uint64(b[8:])
		}
	}
	return tags
}

// soname is the name by which other files need this one, or "".
func (im *image) soname(dyn map[elf.DynTag]uint64) string {
	off, ok := dyn[elf.DT_SONAME]
	if !ok {
		return ""
	}
	table := Vaddr(dyn[elf.DT_STRTAB])
	b, err := im.at(table+Vaddr(off), maxSoname, "the soname")
	if err != nil {
		return ""
	}
	return cString(b, 0)
}

// buildID is the GNU build-id in hexadecimal, or "".
func (im *image) buildID() string {
	for _, s := range im.segments {
		if s.typ != elf.PT_NOTE {
			continue
		}
		b, err := im.bytes(s.off, min(s.filesz, maxNoteBytes), "a note")
		if err == nil {
			if id := noteBuildID(b); id != "" {
				return id
			}
		}
	}
	for i := range im.sections {
		if s := &im.sections[i]; s.typ == elf.SHT_NOTE {
			b, err := im.bytes(s.off, min(s.size, maxNoteBytes), "a note")
			if err == nil {
				if id := noteBuildID(b); id != "" {
					return id
				}
			}
		}
	}
	return ""
}

// noteBuildID walks notes (gABI, "Note Section") for NT_GNU_BUILD_ID.
func noteBuildID(b []byte) string {
	const ntGNUBuildID = 3
	le := binary.LittleEndian
	for len(b) >= 12 {
		namesz, descsz, typ := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		desc := 12 + (namesz+3)&^3
		end := desc + descsz
		if end > uint64(len(b)) {
			return ""
		}
		if typ == ntGNUBuildID && namesz == 4 && string(b[12:16]) == "GNU\x00" {
			return hex.EncodeToString(b[desc:end])
		}
		b = b[min((end+3)&^3, uint64(len(b))):]
	}
	return ""
}

// dynSymbolCount says how many entries the dynamic symbol table has, which
// only its hash tables tell when there are no section headers.
func (im *image) dynSymbolCount(dyn map[elf.DynTag]uint64) uint64 {
	le := binary.LittleEndian
	if h, ok := dyn[elf.DT_HASH]; ok {
		if b, err := im.at(Vaddr(h), 8, "the hash table"); err == nil && len(b) == 8 {
			return uint64(le.Uint32(b[4:]))
		}
	}
	h, ok := dyn[elf.DT_GNU_HASH]
	if !ok {
		return 0
	}
	b, err := im.at(Vaddr(h), maxSection, "the hash table")
	if err != nil || len(b) < 16 {
		return 0
	}
	buckets, first, bloom := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), uint64(le.Uint32(b[8:]))
	at := 16 + bloom*8
	if at+buckets*4 > uint64(len(b)) {
		return 0
	}
	last := uint64(0)
	for i := range buckets {
		last = max(last, uint64(le.Uint32(b[at+i*4:])))
	}
	if last < first {
		return first
	}
	for at += buckets*4 + (last-first)*4; at+4 <= uint64(len(b)); at += 4 {
		last++
		if le.Uint32(b[at:])&1 != 0 { // the end of the chain
			return last
		}
	}
	return 0
}

// Init returns the library's first constructor, if it has one in the old form (DT_INIT), as
// libraries linked with GCC and LLVM do.
func (f *File) Init() (v Vaddr, ok bool) {
	at, ok := f.dyn[elf.DT_INIT]
	return Vaddr(at), ok && f.Executable(Vaddr(at))
}
