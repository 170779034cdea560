package area

import (
	"encoding/binary"

	"kprobe/probe/memory"
	"kprobe/symbols"
)

const (
	// MostTrampolines bounds the number of simultaneous calls with such a return
	// trampoline: calls whose own return address can't carry a breakpoint.
	MostTrampolines = 1024
	// TrampolineSize is the size of one: int3; jmp [cell].
	TrampolineSize = 8
)

// A cell in the journal of return trampolines: the address at which the trampoline continues,
// and the stack slot that holds the trampoline's address.
const (
	cellSize = 16
	cellSlot = 8
)

// Trampolines are the trapping return trampolines of an address space, and which of them are
// free.
type Trampolines struct {
	file  *memory.File
	First symbols.Addr
	cells int64 // offset in the file of the first one's cell
	free  []int
}

func newTrampolineSet(file *memory.File, first symbols.Addr, cells int64) Trampolines {
	s := Trampolines{file: file, First: first, cells: cells}
	for i := range MostTrampolines {
		s.free = append(s.free, MostTrampolines-1-i)
	}
	return s
}

// code returns their text.
func (s *Trampolines) code() []byte {
	var text []byte
	for i := range MostTrampolines {
		at := s.First + symbols.Addr(i*TrampolineSize)
		b := make([]byte, TrampolineSize)
		b[0], b[1], b[2] = memory.Int3, 0xff, 0x25 // int3; jmp [rip+disp]
		disp := int64(s.file.Addr(s.cell(i))) - int64(at+7)
		binary.LittleEndian.PutUint32(b[3:], uint32(int32(disp)))
		b[7] = memory.Int3
		text = append(text, b...)
	}
	return text
}

func (s *Trampolines) cell(i int) int64 { return s.cells + int64(i)*cellSize }

// Take allocates a trampoline for a call whose return address ra lies in a stack slot, and
// makes it lead to ra. ok is false if all are in use.
func (s *Trampolines) Take(slot, ra symbols.Addr) (i int, at symbols.Addr, ok bool) {
	n := len(s.free)
	if n == 0 {
		return -1, 0, false
	}
	i = s.free[n-1]
	s.free = s.free[:n-1]
	s.file.Store64(s.cell(i)+cellSlot, uint64(slot))
	s.file.Store64(s.cell(i), uint64(ra))
	return i, s.First + symbols.Addr(i*TrampolineSize), true
}

// Release frees a trampoline. Its cell keeps the address, because a thread may be about to jump
// through it.
func (s *Trampolines) Release(i int) {
	s.file.Store64(s.cell(i)+cellSlot, 0)
	s.free = append(s.free, i)
}

// Target returns where a trampoline leads, also after it was freed.
func (s *Trampolines) Target(i int) symbols.Addr { return symbols.Addr(s.file.Load64(s.cell(i))) }

// At returns the trampoline whose int3 is at pc.
func (s *Trampolines) At(pc symbols.Addr) (i int, ok bool) {
	if pc < s.First || pc >= s.First+MostTrampolines*TrampolineSize || (pc-s.First)%TrampolineSize != 0 {
		return 0, false
	}
	return int(pc-s.First) / TrampolineSize, true
}
