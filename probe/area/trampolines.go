package area

import (
	"encoding/binary"

	"kprobe/probe/memory"
	"kprobe/symbols"
)

const (
	// MostTrampolines is how many calls at once may have a return trampoline for a return
	// address: those whose own return address can't carry a breakpoint.
	MostTrampolines = 1024
	// TrampolineSize is the size of one: int3; jmp [cell].
	TrampolineSize = 8
)

// A cell of the journal of return trampolines: where the return trampoline goes on at, and the
// stack slot that holds the return trampoline's address.
const (
	cellSize = 16
	cellSlot = 8
)

// Trampolines is the return trampolines of an address space that trap, and which of
// them are free.
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

// code is their text.
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

// Take takes one for a call whose return address lies in a slot of the stack, and has it
// lead there. ok is false when all are in use.
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

// Release takes one back. Its cell keeps its address: a thread may still be about to jump
// through it.
func (s *Trampolines) Release(i int) {
	s.file.Store64(s.cell(i)+cellSlot, 0)
	s.free = append(s.free, i)
}

// Target is where one leads, also after it was taken back.
func (s *Trampolines) Target(i int) symbols.Addr { return symbols.Addr(s.file.Load64(s.cell(i))) }

// At gives the one whose int3 is at pc.
func (s *Trampolines) At(pc symbols.Addr) (i int, ok bool) {
	if pc < s.First || pc >= s.First+MostTrampolines*TrampolineSize || (pc-s.First)%TrampolineSize != 0 {
		return 0, false
	}
	return int(pc-s.First) / TrampolineSize, true
}
