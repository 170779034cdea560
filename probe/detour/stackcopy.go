package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// stackCopy writes the registers and the stack from the program's red zone on
// into the record at CX (fetch.StackCopy). Changes AX and DX.
//
// A load behind the stack's end would fault, which costs a trap. So the copy
// ends at what lies above a thread's stack, where that is within reach: its
// control block (fs:0 points to itself in glibc and musl), or the end of the
// first thread's stack. Where neither tells, the fault ends the copy. What a signal
// interrupted, if its handler has a stack of its own, is not copied.
func (b *builder) stackCopy(s *fetch.StackCopy) {
	for r := range fetch.Reg(16) {
		b.register(r)
		b.Store(asm.W64, data(s.Slot+8*int(r)), asm.AX)
	}
	area, size := b.frame.temp(b.layout.area), b.frame.temp(b.layout.stack)
	b.Store(asm.W64, area, asm.SI)
	b.Lea(asm.AX, b.frame.above(b.where.sp-fetch.StackBelow))
	b.Lea(asm.DX, asm.At(asm.AX, int32(s.Bytes)))
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
	loop := b.Mark()
	b.mayFault(done)
	b.Load(asm.W64, asm.DX, asm.At(asm.AX, 0).By(asm.SI, 1))
	b.Store(asm.W64, data(s.Slot+fetch.StackData).By(asm.SI, 1), asm.DX)
	b.OpImm(asm.Add, asm.W64, asm.SI, 8)
	b.Jcc(asm.NE, loop)
	b.Bind(done)
	b.Load(asm.W64, asm.AX, size)
	b.Op(asm.Sub, asm.W64, asm.CX, asm.AX)
	b.Op(asm.Add, asm.W64, asm.AX, asm.SI) // SI is what a fault left
	b.Store(asm.W64, data(s.Slot+fetch.StackCount), asm.AX)
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Store(asm.W64, data(s.Slot+fetch.StackMore), asm.AX)
	b.Load(asm.W64, asm.SI, area)
}

// end makes DX the address SI if that lies between AX and it.
func (b *builder) end() {
	far := b.NewLabel()
	b.Op(asm.Cmp, asm.W64, asm.SI, asm.AX)
	b.Jcc(asm.BE, far)
	b.Op(asm.Cmp, asm.W64, asm.SI, asm.DX)
	b.Jcc(asm.AE, far)
	b.Mov(asm.W64, asm.DX, asm.SI)
	b.Bind(far)
}
