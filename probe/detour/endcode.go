package detour

import (
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// How the hits of return probes end
//
// The record gets the return address and the time, and the call's row or instance is freed. If records
// have texts, shared code does this and also reserves the room, because such detours are long.

// reserveText is reserve for a record with texts, by shared code. Changes AX, DX, R8, R9, R11.
func (b *builder) reserveText(done asm.Label) {
	b.recordBytes()
	b.MovImm(asm.R9, uint64(b.probe.ID))
	b.toShared(func(s *Shared) uint64 { return s.reserve })
	b.Jcc(asm.E, done)
	b.frame.took()
}

// reserveRoom reserves room for a record of R8 bytes, rounded, of probe R9. It returns with the record's
// address in CX, or with ZF set if the hit is lost.
func (b *builder) reserveRoom() {
	lost := b.NewLabel()
	b.lengthBits(asm.DX, true)
	b.Op(asm.Or, asm.W32, asm.R9, asm.DX)
	retry := b.claim(asm.Indexed(asm.AX, asm.R8, 1, 0), lost)
	b.Store(asm.W32, asm.At(asm.CX, ring.StateOff), asm.R9)
	b.tid()
	b.Store(asm.W32, asm.At(asm.CX, ring.TIDOff), asm.AX)
	b.backWith()
	b.Bind(lost)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.SI, ring.HeadOff)) // as in reserve
	b.Jcc(asm.NE, retry)
	b.Mov(asm.W32, asm.DX, asm.R9)
	b.OpImm(asm.And, asm.W32, asm.DX, ring.MaxID)
	b.ImulImm(asm.W32, asm.DX, asm.DX, ring.CounterSize)
	b.Lock()
	b.IncMem(asm.W64, asm.Indexed(asm.SI, asm.DX, 1, ring.CountersOff+ring.CounterLost))
	b.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	b.back()
}

// endBy calls a piece of the shared code that ends the hit whose record is at CX, and its call. of loads which
// call it is. A hit that comes to done has no record. Changes the registers that of and the piece
// change.
func (b *builder) endBy(done asm.Label, of func(), piece func(*Shared) uint64) {
	end := b.Mark()
	of()
	b.toShared(piece)
	b.later(func() {
		b.Bind(done)
		b.Op(asm.Xor, asm.W32, asm.CX, asm.CX)
		b.Jmp(end)
	})
}

// endRecord ends the record at CX, unless CX is 0. The record's state word has its size. The values of the
// call's entry are at DI. Changes AX and DX.
func (b *builder) endRecord() {
	none := b.NewLabel()
	b.Test(asm.W64, asm.CX, asm.CX)
	b.Jcc(asm.E, none)
	b.Load(asm.W32, asm.DX, asm.At(asm.CX, ring.StateOff))
	b.sizeOf(true, nil)
	b.Load(asm.W64, asm.AX, asm.At(asm.DI, instReal-instEntry)) // callReal-callEntry too
	b.Store(asm.W64, asm.Indexed(asm.CX, asm.DX, 1, -ReturnTail), asm.AX)
	b.stamp(asm.At(asm.CX, ring.TimeOff))
	b.OpMemImm(asm.Or, asm.W8, asm.At(asm.CX, ring.StateOff+3), -1<<7) // as in commit
	b.Bind(none)
}

// freeCall frees the row whose entry's values are at DI. Changes AX.
func (b *builder) freeCall() {
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Store(asm.W32, asm.At(asm.DI, callTID-callEntry), asm.AX)
	b.Store(asm.W64, asm.At(asm.DI, callSlot-callEntry), asm.AX)
}

// freeInstance frees instance DX of the pool at SI. The values of its entry are at CX. stripes is the pool's
// number of stripes; 0: it is read from the pool's head. Changes AX, DX, SI and DI.
func (b *builder) freeInstance(stripes int) {
	if stripes != 1 {
		b.Lea(asm.AX, asm.At(asm.DX, -1))
		if stripes > 0 {
			b.OpImm(asm.And, asm.W32, asm.AX, int32(stripes-1))
			b.ShiftImm(asm.Shl, asm.W32, asm.AX, stripeShift)
		} else {
			b.ShiftImm(asm.Shl, asm.W32, asm.AX, stripeShift)
			b.OpLoad(asm.And, asm.W32, asm.AX, asm.At(asm.SI, poolMask))
		}
		b.Op(asm.Add, asm.W64, asm.SI, asm.AX)
	}
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32) // SI = the stripe's head
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Store(asm.W32, asm.At(asm.CX, instTID-instEntry), asm.AX)
	b.Load(asm.W64, asm.AX, asm.At(asm.SI, 0))
	retry := b.Mark()
	b.Mov(asm.W64, asm.DI, asm.AX)
	b.ShiftImm(asm.Shr, asm.W64, asm.DI, 32)
	b.OpImm(asm.Add, asm.W32, asm.DI, 1)
	b.Store(asm.W32, asm.At(asm.CX, instNext-instEntry), asm.DI)
	b.Mov(asm.W32, asm.DI, asm.AX)
	b.Op(asm.Or, asm.W64, asm.DI, asm.DX)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.SI, 0), asm.DI)
	b.Jcc(asm.NE, retry)
}
