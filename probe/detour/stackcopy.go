package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// Temporaries of a stack's copy, in bytes from the first.
const (
	stackPiece = 0  // bytes of the piece that is being copied
	stackFirst = 8  // bytes of the first piece
	stackFrom  = 16 // the stack pointer that a signal interrupted
	stackTemps = 24
)

// stackCopy writes the registers and the stack, from the program's red zone on, into the record
// at CX (fetch.StackCopy). Changes AX and DX.
//
// A load beyond the stack's end would fault, which costs a trap. So the copy ends at what lies
// above a thread's stack, if that is within reach: its control block (fs:0 points to itself in
// glibc and musl), or the end of the first thread's stack. If neither is known, the fault ends
// the copy.
//
// A copy that ends like that has everything. Any other may be of a signal handler's own stack.
// If the frame of the signal is on it, the first piece ends there, and the second piece is of
// the stack that the signal interrupted.
func (b *builder) stackCopy(s *fetch.StackCopy) {
	for r := range fetch.Reg(16) {
		b.register(r)
		b.Store(asm.W64, data(s.Slot+8*int(r)), asm.AX)
	}
	t := b.layout.stack
	area := b.frame.temp(b.layout.area)
	b.Store(asm.W64, area, asm.SI)
	b.Lea(asm.AX, b.frame.above(b.where.sp-fetch.StackBelow))
	b.Lea(asm.DX, asm.At(asm.AX, int32(s.Bytes)))
	b.copyPiece(s, t)
	look, out := b.NewLabel(), b.NewLabel()
	b.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	b.Store(asm.W64, data(s.Slot+fetch.StackCount), asm.AX)
	b.Store(asm.W64, data(s.Slot+fetch.StackMore), asm.DX)
	b.Test(asm.W64, asm.SI, asm.SI)
	b.Jcc(asm.NE, look)
	b.OpImm(asm.Cmp, asm.W64, asm.AX, int32(s.Bytes))
	b.Jcc(asm.E, look)
	b.Bind(out)
	b.Load(asm.W64, asm.SI, area)
	sp := b.where.sp
	b.later(func() {
		b.Bind(look)
		b.findSignal(sp, t, out)
		b.secondPiece(s, sp, t)
		b.Jmp(out)
	})
}

// copyPiece copies the memory from AX to at most DX behind the data that the record at CX has already. AX becomes
// the number of bytes. SI is not 0 if a fault has ended the copy.
func (b *builder) copyPiece(s *fetch.StackCopy, t int) {
	size := b.frame.temp(t + stackPiece)
	if b.p.TID.Seg == asm.FS {
		none := b.NewLabel()
		b.mayFault(none)
		b.Load(asm.W64, asm.SI, asm.SegAbs(asm.FS, 0))
		b.end()
		b.Bind(none)
	}
	if b.p.StackEnd != 0 {
		b.MovAbs(asm.SI, b.p.StackEnd)
		b.end()
	}
	b.Op(asm.Sub, asm.W64, asm.DX, asm.AX)
	b.OpImm(asm.And, asm.W64, asm.DX, -8)
	b.Store(asm.W64, size, asm.DX)
	// Both ends move up, and SI counts from -size to 0.
	b.Op(asm.Add, asm.W64, asm.AX, asm.DX)
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Op(asm.Xor, asm.W32, asm.SI, asm.SI)
	b.Op(asm.Sub, asm.W64, asm.SI, asm.DX)
	done := b.NewLabel()
	b.Jcc(asm.E, done)
	from := asm.At(asm.AX, 0).By(asm.SI, 1)
	b.canRead(from, 8, done)
	loop := b.Mark()
	b.mayFault(done)
	b.Load(asm.W64, asm.DX, from)
	b.Store(asm.W64, data(s.Slot+fetch.StackData).By(asm.SI, 1), asm.DX)
	b.OpImm(asm.Add, asm.W64, asm.SI, 8)
	if b.p.Careful {
		b.Jcc(asm.E, done)
		b.Lea(asm.DX, from.Plus(7))
		b.TestImm(asm.W32, asm.DX, 1<<pageShift-8)
		b.Jcc(asm.NE, loop)
		b.canRead(from, 8, done) // before the first word of each page
		b.Jmp(loop)
	} else {
		b.Jcc(asm.NE, loop)
	}
	b.Bind(done)
	b.Load(asm.W64, asm.AX, size)
	b.Op(asm.Sub, asm.W64, asm.CX, asm.AX)
	b.Op(asm.Add, asm.W64, asm.AX, asm.SI) // SI is minus the number of bytes that a fault left uncopied
}

// findSignal searches AX bytes of the stack for the frame of a signal that left another stack
// for this one (fetch/altstack.go). It continues with AX at the frame's word of segments, or at
// none. Changes DX and SI.
func (b *builder) findSignal(sp int64, t int, none asm.Label) {
	const align, at = fetch.SigFrameAlign, fetch.SigSegmentsAt
	top, test := b.NewLabel(), b.NewLabel()
	b.Lea(asm.SI, b.frame.above(sp-fetch.StackBelow-8))
	b.Op(asm.Add, asm.W64, asm.SI, asm.AX) // the last word
	b.Lea(asm.AX, b.frame.above(sp+fetch.SigFrameCS-at+align-1))
	b.OpImm(asm.And, asm.W64, asm.AX, -align)
	b.OpImm(asm.Add, asm.W64, asm.AX, at)
	other := b.Mark()
	b.MovAbs(asm.DX, fetch.SigSegments)
	b.Jmp(test)
	b.Bind(top)
	b.mayFault(none)
	b.OpLoad(asm.Cmp, asm.W64, asm.DX, asm.At(asm.AX, 0))
	found := b.NewLabel()
	b.Jcc(asm.E, found)
	b.OpImm(asm.Add, asm.W64, asm.AX, align)
	b.Bind(test)
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.SI)
	b.Jcc(asm.BE, top)
	b.Jmp(none)
	no := b.NewLabel()
	b.Bind(no)
	b.OpImm(asm.Add, asm.W64, asm.AX, align)
	b.Jmp(other)
	b.Bind(found)
	b.signalFrame(sp, t, no)
}

// signalFrame continues at no unless the word of segments at AX is in the frame of a signal that left another
// stack for the thread's present one. Changes DX.
func (b *builder) signalFrame(sp int64, t int, no asm.Label) {
	at := func(off int32) asm.Mem { return asm.At(asm.AX, off-fetch.SigFrameCS) }
	const low, high = fetch.SigFrameCode, fetch.SigFrameRSP // bounds of the fields that are read
	b.canRead(at(low), high+8-low, no)
	b.mayFault(no)
	b.OpMemImm(asm.Cmp, asm.W64, at(fetch.SigFrameFlags), fetch.SigFlagsMax)
	b.Jcc(asm.A, no)
	b.mayFault(no)
	b.OpMemImm(asm.Cmp, asm.W64, at(fetch.SigFrameLink), 0)
	b.Jcc(asm.NE, no)
	b.Lea(asm.DX, b.frame.above(sp))
	b.mayFault(no)
	b.OpLoad(asm.Sub, asm.W64, asm.DX, at(fetch.SigFrameStack))
	b.mayFault(no)
	b.OpLoad(asm.Cmp, asm.W64, asm.DX, at(fetch.SigFrameSize))
	b.Jcc(asm.AE, no)
	b.mayFault(no)
	b.Load(asm.W64, asm.DX, at(fetch.SigFrameRSP))
	b.Test(asm.W64, asm.DX, asm.DX)
	b.Jcc(asm.E, no)
	b.Store(asm.W64, b.frame.temp(t+stackFrom), asm.DX)
	b.mayFault(no)
	b.OpLoad(asm.Sub, asm.W64, asm.DX, at(fetch.SigFrameStack))
	b.mayFault(no)
	b.OpLoad(asm.Cmp, asm.W64, asm.DX, at(fetch.SigFrameSize))
	b.Jcc(asm.B, no)
	b.mayFault(no)
	b.Load(asm.W64, asm.DX, at(fetch.SigFrameCode))
	code := uint64(fetch.SigReturn)
	b.canRead(asm.At(asm.DX, 0), 8, no)
	b.mayFault(no)
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.DX, 0), int32(uint32(code)))
	b.Jcc(asm.NE, no)
	b.mayFault(no)
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.DX, 4), int32(uint32(code>>32)))
	b.Jcc(asm.NE, no)
}

// secondPiece ends the first piece at the signal's frame, whose word of segments is at AX, and copies the stack
// that the signal interrupted into the remaining room.
func (b *builder) secondPiece(s *fetch.StackCopy, sp int64, t int) {
	first := b.frame.temp(t + stackFirst)
	b.Lea(asm.DX, b.frame.above(sp-fetch.StackBelow-8))
	b.Op(asm.Sub, asm.W64, asm.AX, asm.DX)
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.Store(asm.W64, data(s.Slot+fetch.StackCount), asm.DX)
	b.Store(asm.W64, first, asm.DX)
	b.Load(asm.W64, asm.AX, b.frame.temp(t+stackFrom))
	b.OpImm(asm.Sub, asm.W64, asm.AX, fetch.StackBelow)
	b.Store(asm.W64, data(s.Slot+fetch.StackMore+8), asm.AX)
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Neg(asm.W64, asm.DX)
	b.Lea(asm.DX, asm.At(asm.AX, int32(s.Bytes)).By(asm.DX, 1))
	b.copyPiece(s, t)
	b.OpLoad(asm.Sub, asm.W64, asm.CX, first)
	b.Store(asm.W64, data(s.Slot+fetch.StackMore), asm.AX)
}

// end sets DX to SI if SI is between AX and DX.
func (b *builder) end() {
	far := b.NewLabel()
	b.Op(asm.Cmp, asm.W64, asm.SI, asm.AX)
	b.Jcc(asm.BE, far)
	b.Op(asm.Cmp, asm.W64, asm.SI, asm.DX)
	b.Jcc(asm.AE, far)
	b.Mov(asm.W64, asm.DX, asm.SI)
	b.Bind(far)
}
