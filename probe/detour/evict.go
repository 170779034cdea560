package detour

import (
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Room in rings whose records are overwritten (probe/ring, overwrite.go)
//
// It lies out of the way: a hit comes here when the ring is full, once for ChunkSize
// bytes of records.

// The temporaries of evict: where the tail was, and for so many probes how many of
// their records are overwritten, each {u32 number, u32 id}.
const (
	evictKinds = 4
	evictTail  = 0
	evictCount = 8
	evictTemp  = evictCount + 8*evictKinds
)

// ringWord is a word of the ring of the CPU whose area is at SI in which room is made.
func (b *builder) ringWord(off int32) asm.Mem { return asm.At(asm.SI, b.evicted+off) }

// evict makes room in a ring of the CPU whose area is at SI, its first or, with
// ring.SeqOff, its second, and goes on at retry; with none to be made it goes on at lost.
// at is where its temporaries are. Changes AX, CX and DX.
func (b *builder) evict(which int32, at int, retry, lost asm.Label) {
	b.evicted = which
	temp := func(off int) asm.Mem { return b.frame.temp(at + off) }
	loop, next, claim, stuck := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Load(asm.W64, asm.CX, b.ringWord(ring.TailOff))
	b.Store(asm.W64, temp(evictTail), asm.CX)
	for i := range evictKinds {
		b.StoreImm(asm.W64, temp(evictCount+8*i), 0)
	}

	b.Bind(loop)
	b.recordAt(stuck)
	b.Test(asm.W32, asm.AX, asm.AX)
	b.Jcc(asm.NS, stuck)
	b.recordSize(stuck)
	for i := range evictKinds {
		other, found := b.NewLabel(), b.NewLabel()
		b.OpLoad(asm.Cmp, asm.W32, asm.AX, temp(evictCount+8*i+4))
		b.JccShort(asm.E, found)
		b.OpMemImm(asm.Cmp, asm.W32, temp(evictCount+8*i), 0)
		b.JccShort(asm.NE, other)
		b.Store(asm.W32, temp(evictCount+8*i+4), asm.AX)
		b.Bind(found)
		b.OpMemImm(asm.Add, asm.W32, temp(evictCount+8*i), 1)
		b.Jmp(next)
		b.Bind(other)
	}
	b.Jmp(claim) // a fifth probe's: for the next time
	b.Bind(next)
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Mov(asm.W64, asm.DX, asm.CX)
	b.OpLoad(asm.Sub, asm.W64, asm.DX, temp(evictTail))
	b.OpImm(asm.Cmp, asm.W64, asm.DX, ring.ChunkSize)
	b.Jcc(asm.B, loop)

	b.Bind(claim)
	b.Load(asm.W64, asm.AX, temp(evictTail))
	b.Lock()
	b.Cmpxchg(asm.W64, b.ringWord(ring.TailOff), asm.CX)
	b.Jcc(asm.NE, retry) // another has
	b.Op(asm.Xor, asm.W32, asm.CX, asm.CX)
	for i := range evictKinds {
		none := b.NewLabel()
		b.Load(asm.W32, asm.DX, temp(evictCount+8*i))
		b.Test(asm.W32, asm.DX, asm.DX)
		b.JccShort(asm.E, none)
		b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
		b.Load(asm.W32, asm.AX, temp(evictCount+8*i+4))
		b.counterOf(ring.CounterHits, asm.DX)
		b.Bind(none)
	}
	b.Lock()
	b.OpStore(asm.Add, asm.W64, b.ringWord(ring.OverOff), asm.CX)
	b.Jmp(retry)

	b.Bind(stuck)
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, temp(evictTail))
	b.Jcc(asm.NE, claim)
	b.stuck(temp(evictTail), temp(evictCount), retry, lost)
}

// recordAt makes AX the state word of the record at position CX, or goes on at none
// where none has that stamp.
func (b *builder) recordAt(none asm.Label) {
	b.Mov(asm.W64, asm.AX, asm.CX)
	b.OpLoad(asm.And, asm.W64, asm.AX, b.ringWord(ring.MaskOff))
	b.OpLoad(asm.Add, asm.W64, asm.AX, b.ringWord(ring.DataPtr))
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, asm.At(asm.AX, 0))
	b.Jcc(asm.NE, none)
	b.Load(asm.W32, asm.AX, asm.At(asm.AX, ring.StampSize+ring.StateOff))
}

// recordSize makes DX the bytes, with the stamp, and AX the probe of the state word in AX,
// or goes on at none where no record has such a one.
func (b *builder) recordSize(none asm.Label) {
	b.Mov(asm.W32, asm.DX, asm.AX)
	b.ShiftImm(asm.Shr, asm.W32, asm.DX, stateShift)
	b.OpImm(asm.And, asm.W32, asm.DX, ring.MaxRecord)
	b.Jcc(asm.E, none)
	b.OpImm(asm.Add, asm.W32, asm.DX, ring.StampSize)
	b.OpImm(asm.And, asm.W32, asm.AX, ring.MaxID)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, int32((1<<b.p.AreaShift-ring.CountersOff)/ring.CounterSize))
	b.Jcc(asm.AE, none)
}

// counterOf adds register n to a counter of the probe whose number is in AX. Changes AX.
func (b *builder) counterOf(counter int32, n asm.Reg) {
	b.ImulImm(asm.W32, asm.AX, asm.AX, ring.CounterSize)
	b.Lock()
	b.OpStore(asm.Add, asm.W64, asm.Indexed(asm.SI, asm.AX, 1, ring.CountersOff+counter), n)
}

// stuck is evict for an unfinished record at the tail, which is in CX and in tail. given
// is a temporary.
func (b *builder) stuck(tail, given asm.Mem, retry, lost asm.Label) {
	same, unknown, next, move := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, b.ringWord(ring.TailOff))
	b.Jcc(asm.NE, retry) // others have been here
	b.tsc()
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, ring.StuckShift)
	b.Lea(asm.DX, asm.At(asm.CX, 1)) // 0 is none
	b.OpLoad(asm.Cmp, asm.W64, asm.DX, b.ringWord(ring.StuckOff))
	b.Jcc(asm.E, same)
	b.StoreImm(asm.W64, b.ringWord(ring.StuckTry), 0)
	b.Store(asm.W64, b.ringWord(ring.StuckLast), asm.AX)
	b.Store(asm.W64, b.ringWord(ring.StuckOff), asm.DX) // last: others believe the rest by it
	b.Jmp(lost)

	// Each period counts once, whoever meets it first. Whoever comes late to the words
	// of another tail takes off what was counted, and adds no more than one.
	b.Bind(same)
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.Load(asm.W64, asm.AX, b.ringWord(ring.StuckLast))
	b.Op(asm.Cmp, asm.W64, asm.DX, asm.AX)
	b.Jcc(asm.BE, lost) // the counters of two CPUs may differ
	b.Lock()
	b.Cmpxchg(asm.W64, b.ringWord(ring.StuckLast), asm.DX)
	b.Jcc(asm.NE, lost)
	b.IncMem(asm.W64, b.ringWord(ring.StuckTry))
	b.OpMemImm(asm.Cmp, asm.W64, b.ringWord(ring.StuckTry), ring.StuckPeriods)
	b.Jcc(asm.B, lost)

	b.recordAt(unknown)
	b.recordSize(unknown)
	b.Store(asm.W32, given, asm.AX)
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Bind(move)
	b.Load(asm.W64, asm.AX, tail)
	b.Lock()
	b.Cmpxchg(asm.W64, b.ringWord(ring.TailOff), asm.CX)
	b.Jcc(asm.NE, retry)
	b.Load(asm.W32, asm.AX, given)
	b.Test(asm.W32, asm.AX, asm.AX)
	b.Jcc(asm.E, retry)
	b.ImulImm(asm.W32, asm.AX, asm.AX, ring.CounterSize)
	b.MovAbs(asm.DX, b.p.PerCPU+uint64(b.p.areas())<<b.p.AreaShift+ring.CountersOff+ring.ReaderLost)
	b.Lock()
	b.IncMem(asm.W64, asm.Indexed(asm.DX, asm.AX, 1, 0))
	b.Jmp(retry)

	// Not even its length is known: the next record is where one says that it is, or
	// else all are given up.
	b.Bind(unknown)
	b.StoreImm(asm.W32, given, 0)
	all := b.NewLabel()
	b.Bind(next)
	b.OpImm(asm.Add, asm.W64, asm.CX, ring.Unit)
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, b.ringWord(ring.HeadOff))
	b.Jcc(asm.E, move)
	b.Mov(asm.W64, asm.DX, asm.CX)
	b.OpLoad(asm.Sub, asm.W64, asm.DX, tail)
	b.OpImm(asm.Cmp, asm.W64, asm.DX, ring.MaxRecord+ring.StampSize)
	b.Jcc(asm.A, all)
	b.recordAt(next)
	b.recordSize(next)
	b.Jmp(move)
	b.Bind(all)
	b.Load(asm.W64, asm.CX, b.ringWord(ring.HeadOff))
	b.Jmp(move)
}
