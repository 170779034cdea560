package detour

import (
	"kprobe/probe/asm"
)

// Instances without locks
//
// A locked instruction costs as much as the rest of a call. If hundreds of functions are probed
// and their returns are only counted, most instances are taken and freed without one: each CPU
// keeps one free instance of the pool for itself (Pool.Keeps). Only restartable sequences on that
// CPU change what it keeps (seqcode.go). A return leaves its instance there, and the next call
// takes it. If the CPU keeps none, or already has one, or the thread may have no sequence, calls
// and returns go to the stripes.
//
// A free instance is in a stripe's list or kept by a CPU; which, makes no difference to the call that takes it.
// Nobody takes what another CPU keeps. So a call may be missed while other CPUs keep one
// instance each, and pools whose number of instances somebody has asked for keep none.
//
// The address of the instance is in the head of the CPU's stripe, at keptAt; 0: none.
const keptAt = instReal

// takeKept is take, of the instance that the CPU keeps.
func (b *builder) takeKept(take asm.Label) {
	unknown, known := b.NewLabel(), b.NewLabel()
	b.sequenceOf(asm.SI, 0, func(_ asm.Mem, out asm.Label) {
		b.ShiftImm(asm.Shl, asm.W32, asm.SI, stripeShift)
		kept := asm.Indexed(asm.R11, asm.SI, 1, keptAt)
		b.Load(asm.W64, asm.CX, kept)
		b.Test(asm.W64, asm.CX, asm.CX)
		b.Jcc(asm.E, out)
		b.StoreImm(asm.W64, kept, 0)
	}, func() {}, func() { b.Jmp(take) })
	b.Load(asm.W32, asm.AX, asm.At(asm.AX, b.p.TID.Off)) // in the control block that was verified
	b.Test(asm.W32, asm.AX, asm.AX)
	b.Jcc(asm.E, unknown)
	b.Bind(known)
	b.fill(func() {
		b.Mov(asm.W32, asm.DI, asm.CX)
		b.OpLoad(asm.Sub, asm.W32, asm.DI, asm.At(asm.R11, poolBefore))
	})
	b.later(func() {
		b.Bind(unknown)
		b.ask(known)
	})
}

// fill writes the instance CX, which was taken for the call whose slot is at DI, by the thread AX,
// and returns from take. distance puts into DI what take returns there. Changes AX, DX.
func (b *builder) fill(distance func()) {
	b.Store(asm.W32, asm.At(asm.CX, instTID), asm.AX)
	b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0))
	b.Store(asm.W64, asm.At(asm.CX, instReturn), asm.AX)
	b.behind()
	b.Store(asm.W64, asm.At(asm.CX, instReal), asm.AX)
	b.Store(asm.W64, asm.At(asm.CX, instSlot), asm.DI)
	distance()
	b.backWith()
}

// keepInstance frees an instance: the CPU keeps it, or locked frees it in another way. SI is the address of the
// instance. Changes AX, CX and DX.
func (b *builder) keepInstance(pool Pool, locked func()) {
	done := b.NewLabel()
	b.StoreImm(asm.W32, asm.At(asm.SI, instTID), 0)
	b.sequenceOf(asm.DX, 0, func(_ asm.Mem, out asm.Label) {
		b.ShiftImm(asm.Shl, asm.W32, asm.DX, stripeShift)
		b.MovAbs(asm.CX, pool.Addr)
		kept := asm.Indexed(asm.CX, asm.DX, 1, keptAt)
		b.OpMemImm(asm.Cmp, asm.W64, kept, 0)
		b.Jcc(asm.NE, out)
		b.Store(asm.W64, kept, asm.SI)
	}, func() {}, func() {
		locked()
		b.Jmp(done)
	})
	b.Bind(done)
}
