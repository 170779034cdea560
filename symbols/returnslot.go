package symbols

import (
	"debug/elf"
	"encoding/binary"
	"sort"

	"kprobe/symbols/unwind"
)

// ReturnSlot is where the return address of a call is while an instruction runs, as call frame information tells.
type ReturnSlot struct {
	// Base is the register, by its DWARF number, and Off what to add to it for the address behind the return address.
	Base uint64
	Off  int64
	// Start and End are the range of code that the information is about: mostly a function, or a part of one.
	Start, End Vaddr
}

// ReturnSlot tells where the return address is at an address of code, by .eh_frame. ok is false if that isn't known, or
// is not a register and a number. Of a file that has .eh_frame_hdr it reads little and keeps nothing. Safe for concurrent
// use.
func (f *File) ReturnSlot(v Vaddr) (s ReturnSlot, ok bool) {
	var err error
	defer rescue(f.Path, &err)
	r, ok := fdeAt(f.fdes(), v)
	if !ok {
		return ReturnSlot{}, false
	}
	row, ok := f.rowAt(v, r)
	ra := &row.Regs[unwind.PC]
	if !ok || row.CFA.Kind != unwind.InRegister || ra.Kind != unwind.AtCFA || ra.Off != -8 {
		return ReturnSlot{}, false
	}
	return ReturnSlot{row.CFA.Reg, row.CFA.Off, r.start, r.end}, true
}

// rowAt is the row of .eh_frame for an address in a range.
func (f *File) rowAt(v Vaddr, r fde) (unwind.Row, bool) {
	entry, ok := f.im.frameEntry(r.start)
	if !ok {
		return f.ehTable().At(uint64(v))
	}
	return unwind.Single(uint64(v), uint64(entry), func(at uint64, n int) []byte {
		b, _ := f.im.at(Vaddr(at), uint64(n), "the unwinding information")
		return b
	})
}

// sizeofIndex is the size of a row of the table in .eh_frame_hdr: an address of code, and of the entry for it.
const sizeofIndex = 8

// frameEntry finds the entry of .eh_frame for the code at an address, by the sorted table that linkers put into
// .eh_frame_hdr (LSB, "Exception Frame Header"), in the encoding that they use.
func (im *image) frameEntry(start Vaddr) (at Vaddr, ok bool) {
	seg := im.segmentOf(elf.PT_GNU_EH_FRAME)
	var head [12]byte
	if seg == nil || im.fill(head[:], seg.off, "the unwinding header") != nil {
		return 0, false
	}
	if head[0] != 1 || head[1]&0xf != 0x0b || head[2] != 0x03 || head[3] != 0x3b {
		return 0, false
	}
	n := int(min(uint64(binary.LittleEndian.Uint32(head[8:])), seg.filesz/sizeofIndex))
	var row [sizeofIndex]byte
	read := func(i int) (code, entry Vaddr) {
		if im.fill(row[:], seg.off+Off(len(head))+Off(i)*sizeofIndex, "the unwinding header") != nil {
			return ^Vaddr(0), 0
		}
		word := func(b []byte) Vaddr { return seg.vaddr + Vaddr(int32(binary.LittleEndian.Uint32(b))) }
		return word(row[:]), word(row[4:])
	}
	i := sort.Search(n, func(i int) bool { code, _ := read(i); return code >= start })
	if i == n {
		return 0, false
	}
	code, at := read(i)
	return at, code == start
}
