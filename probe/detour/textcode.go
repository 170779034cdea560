package detour

import (
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// The shared code for texts: it finds a text's end, and copies the text. It is the larger part of a text's code. A
// detour jumps to it, and it jumps back (Shared).

// scan calls the shared code that measures the text at DI. It sets DX to the upper half of the text's word: the
// length up to NUL, or textTruncated and limit. A text in an array of most bytes ends with the array; 0
// is no array. If the text can't be read, the code continues at fault with textFault in DX. Changes AX,
// CX, R8 … R11.
func (b *builder) scan(fault asm.Label, most, limit int) {
	inArray := most > 0 && most <= limit
	if !inArray {
		most = limit
	}
	b.MovImm(asm.DX, uint64(most))
	b.toShared(func(s *Shared) uint64 { return s.scan })
	b.Jcc(asm.S, fault)
	if inArray {
		b.MovZX(asm.W16, asm.DX, asm.DX)
	}
}

// copyText copies the text that was measured into the temporaries at off. It goes behind the other texts of the record
// at CX, and its word into slot. R8 is the offset of the next text, unless this is the only one. Changes
// AX, DX, DI, R8 … R11.
func (b *builder) copyText(off, slot int) {
	if b.layout.only >= 0 {
		b.MovImm(asm.R8, uint64(b.prog.Fixed))
	}
	b.Lea(asm.DI, b.frame.temp(off))
	b.Lea(asm.R9, data(slot))
	b.toShared(func(s *Shared) uint64 { return s.copy })
}

// toShared calls a piece of the shared code. Changes AX.
func (b *builder) toShared(piece func(*Shared) uint64) {
	if b.p.Shared == nil {
		b.fail(errNoShared)
		return
	}
	b.sharedFaults = true
	link := b.NewLabel()
	b.Lea(asm.AX, asm.Rel(link))
	b.Store(asm.W64, asm.At(asm.SP, linkWord), asm.AX)
	b.MovAbs(asm.AX, piece(b.p.Shared))
	b.JmpRegNoTrack(asm.AX)
	b.Bind(link)
}

// scanText is the shared code of scan. It returns with SF set if the text can't be read. DX is the distance at
// which it stops searching for NUL. It reads aligned words, so it reads no page that the text doesn't reach.
func (b *builder) scanText() {
	loop, found, long, fault := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Lea(asm.AX, asm.At(asm.DI, -lowest))
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 47)
	b.Jcc(asm.NE, fault)
	b.MovAbs(asm.R10, 0x0101010101010101)
	b.Mov(asm.W64, asm.R11, asm.R10)
	b.ShiftImm(asm.Shl, asm.W64, asm.R11, 7) // 0x8080…
	b.Mov(asm.W32, asm.CX, asm.DI)
	b.ShiftImm(asm.Shl, asm.W32, asm.CX, 3)
	b.Mov(asm.W64, asm.R8, asm.DI)
	b.OpImm(asm.And, asm.W64, asm.R8, -8)
	// The bytes of the first word before the text must not count as zero. Shift counts are taken
	// modulo 64.
	b.OpImm(asm.Or, asm.W64, asm.R9, -1)
	b.ShiftCL(asm.Shl, asm.W64, asm.R9)
	b.Not(asm.W64, asm.R9)
	b.mayRead(asm.At(asm.R8, 0), 8, fault)
	b.Load(asm.W64, asm.AX, asm.At(asm.R8, 0))
	b.Op(asm.Or, asm.W64, asm.AX, asm.R9)
	b.Op(asm.Add, asm.W64, asm.DX, asm.DI) // the address at which the search ends at the latest
	// A byte of x is zero if its top bit is set in (x - 0x01…) & ^x & 0x80…;
	// the lowest one found is exact.
	b.Bind(loop)
	b.Mov(asm.W64, asm.R9, asm.AX)
	b.Not(asm.W64, asm.R9)
	b.Op(asm.Sub, asm.W64, asm.AX, asm.R10)
	b.Op(asm.And, asm.W64, asm.AX, asm.R9)
	b.Op(asm.And, asm.W64, asm.AX, asm.R11)
	b.Jcc(asm.NE, found)
	b.OpImm(asm.Add, asm.W64, asm.R8, 8)
	b.Op(asm.Cmp, asm.W64, asm.R8, asm.DX)
	b.Jcc(asm.AE, long)
	if b.p.Careful {
		within := b.NewLabel()
		b.TestImm(asm.W32, asm.R8, 1<<pageShift-1)
		b.Jcc(asm.NE, within)
		b.canRead(asm.At(asm.R8, 0), 8, fault)
		b.Bind(within)
	}
	b.mayFault(fault)
	b.Load(asm.W64, asm.AX, asm.At(asm.R8, 0))
	b.Jmp(loop)
	b.Bind(found)
	b.Bsf(asm.W64, asm.AX, asm.AX)
	b.ShiftImm(asm.Shr, asm.W32, asm.AX, 3)
	b.Op(asm.Add, asm.W64, asm.R8, asm.AX)
	b.Op(asm.Cmp, asm.W64, asm.R8, asm.DX)
	b.JccShort(asm.AE, long)
	b.Mov(asm.W64, asm.DX, asm.R8)
	b.Op(asm.Sub, asm.W32, asm.DX, asm.DI)
	b.back() // SF is clear
	b.Bind(long)
	b.Op(asm.Sub, asm.W32, asm.DX, asm.DI)
	b.OpImm(asm.Or, asm.W32, asm.DX, textTruncated)
	b.back() // SF is clear
	b.Bind(fault)
	b.MovImm(asm.DX, textFault)
	b.Test(asm.W32, asm.DX, asm.DX)
	b.back()
}

// copyOut is the shared code of copyText. DI points to the text's temporaries, R8 is the offset in the data of the
// record at CX, and R9 points to the text's slot. R8 becomes the offset of the next text. Changes AX, DX,
// DI, R10, R11.
func (b *builder) copyOut() {
	none, small, tiny := b.NewLabel(), b.NewLabel(), b.NewLabel()
	loop, tail, fault, empty := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Load(asm.W64, asm.DX, asm.At(asm.DI, textWord))
	b.Test(asm.W64, asm.DX, asm.DX)
	b.Jcc(asm.S, none)
	b.Load(asm.W64, asm.DI, asm.At(asm.DI, textAddr))
	b.Lea(asm.R11, asm.Indexed(asm.CX, asm.R8, 1, ring.DataOff))
	b.Op(asm.Or, asm.W64, asm.DX, asm.R8)
	b.Store(asm.W64, asm.At(asm.R9, 0), asm.DX)
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 32)
	b.MovZX(asm.W16, asm.DX, asm.DX)
	b.Op(asm.Add, asm.W64, asm.R8, asm.DX)
	// DI = source, R11 = destination, DX = length. Copies eight bytes at a time; the last eight end at
	// the text's end. Four to seven bytes are copied by two words that may overlap.
	b.OpImm(asm.Sub, asm.W32, asm.DX, 8)
	b.Jcc(asm.B, small)
	b.Op(asm.Xor, asm.W32, asm.R10, asm.R10)
	b.Bind(loop)
	b.Op(asm.Cmp, asm.W32, asm.R10, asm.DX)
	b.JccShort(asm.AE, tail)
	b.mayFault(fault)
	b.Load(asm.W64, asm.AX, asm.Indexed(asm.DI, asm.R10, 1, 0))
	b.Store(asm.W64, asm.Indexed(asm.R11, asm.R10, 1, 0), asm.AX)
	b.OpImm(asm.Add, asm.W32, asm.R10, 8)
	b.JmpShort(loop)
	b.Bind(tail)
	b.mayFault(fault)
	b.Load(asm.W64, asm.AX, asm.Indexed(asm.DI, asm.DX, 1, 0))
	b.Store(asm.W64, asm.Indexed(asm.R11, asm.DX, 1, 0), asm.AX)
	b.back()

	b.Bind(small)
	b.OpImm(asm.Add, asm.W32, asm.DX, 8-4)
	b.Jcc(asm.S, tiny)
	b.mayFault(fault)
	b.Load(asm.W32, asm.R10, asm.At(asm.DI, 0))
	b.mayFault(fault)
	b.Load(asm.W32, asm.AX, asm.Indexed(asm.DI, asm.DX, 1, 0))
	b.Store(asm.W32, asm.At(asm.R11, 0), asm.R10)
	b.Store(asm.W32, asm.Indexed(asm.R11, asm.DX, 1, 0), asm.AX)
	b.back()

	// The text was unmapped after it was measured. Its room in the record stays unused.
	b.Bind(fault)
	b.MovImm(asm.DX, textFault)
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	b.Bind(none)
	b.Store(asm.W64, asm.At(asm.R9, 0), asm.DX)
	b.back()

	b.Bind(tiny)
	b.OpImm(asm.Add, asm.W32, asm.DX, 4)
	b.Jcc(asm.E, empty)
	byByte := b.Mark()
	b.mayFault(fault)
	b.LoadZX(asm.W8, asm.AX, asm.Indexed(asm.DI, asm.DX, 1, -1))
	b.Store(asm.W8, asm.Indexed(asm.R11, asm.DX, 1, -1), asm.AX)
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, byByte)
	b.Bind(empty)
	b.back()
}
