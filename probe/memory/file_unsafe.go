package memory

import "unsafe"

// word is the 8-byte word at an offset of the mapped file. Offsets come from
// the layout and are bounds-checked and aligned here.
func (m *File) word(off int64) *uint64 {
	if off&7 != 0 {
		panic("memory: unaligned word of the memory file")
	}
	b := m.Mem[off : off+8]
	return (*uint64)(unsafe.Pointer(&b[0]))
}

// half is the 4-byte word at an offset of the mapped file.
func (m *File) half(off int64) *uint32 {
	if off&3 != 0 {
		panic("memory: unaligned word of the memory file")
	}
	b := m.Mem[off : off+4]
	return (*uint32)(unsafe.Pointer(&b[0]))
}
