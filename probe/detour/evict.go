package detour

import (
	"math/bits"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Room in rings whose records are overwritten (probe/ring, overwrite.go)
//
// The code lies out of the way: a hit comes here when the ring is full, once for each ChunkSize bytes of
// records.

// The temporaries of evict: the old tail, the position up to which records are taken, the position that
// was claimed before, saved registers, counts of records, and for evictKinds probes the number of
// their records that are taken, each {u32 number, u32 id}.
const (
	evictKinds = 4
	evictTail  = 0
	evictEnd   = 8
	evictClaim = 16
	evictArea  = 24 // SI
	evictBX    = 32
	evictNow   = 40 // the number that is being counted: a probe's, or the sum
	evictAll   = 48
	evictKind  = 56 // the next of evictCount
	evictCount = 64
	evictTemp  = evictCount + 8*evictKinds
)

// ringWord is a word of the ring in which room is made. SI is the CPU's area.
func (b *builder) ringWord(off int32) asm.Mem { return asm.At(asm.SI, b.evicted+off) }

// evict makes room in a ring of the CPU whose area is at SI, and continues at retry. which is 0 for the CPU's
// first ring, ring.SeqOff for its second. If no room can be made, it continues at lost. at is the
// offset of its temporaries. Changes AX, CX and DX.
func (b *builder) evict(which int32, at int, retry, lost asm.Label) {
	b.evicted, b.evictAt = which, at
	temp := b.evictTemp
	fresh, loop, next, claim, claimed, stuck := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Load(asm.W64, asm.CX, b.ringWord(ring.TailOff)) // must be read before the claimed position
	b.Store(asm.W64, temp(evictTail), asm.CX)
	for i := range evictKinds {
		b.StoreImm(asm.W64, temp(evictCount+8*i), 0)
	}
	b.Load(asm.W64, asm.AX, b.ringWord(ring.ClaimOff))
	b.Store(asm.W64, temp(evictClaim), asm.AX)
	b.Lea(asm.DX, asm.At(asm.CX, ring.ChunkSize))
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.CX)
	b.JccShort(asm.BE, fresh)
	b.Mov(asm.W64, asm.DX, asm.AX) // another thread has claimed records before
	b.Bind(fresh)
	b.Store(asm.W64, temp(evictEnd), asm.DX)

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
	b.Jmp(claim) // a record of a fifth probe stays for the next time
	b.Bind(next)
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, temp(evictEnd))
	b.Jcc(asm.B, loop)

	b.Bind(claim)
	b.Store(asm.W64, temp(evictEnd), asm.CX)
	b.Load(asm.W64, asm.AX, temp(evictClaim))
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, temp(evictTail))
	b.JccShort(asm.A, claimed)
	b.Lock()
	b.Cmpxchg(asm.W64, b.ringWord(ring.ClaimOff), asm.CX)
	b.Jcc(asm.NE, retry) // another thread was faster
	b.Bind(claimed)
	b.Load(asm.W64, asm.AX, temp(evictTail))
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, b.ringWord(ring.TailOff))
	b.Jcc(asm.NE, retry) // the records that were read may be of the ring's next lap
	b.countTaken()
	b.Load(asm.W64, asm.AX, temp(evictTail))
	b.Load(asm.W64, asm.CX, temp(evictEnd))
	b.Lock()
	b.Cmpxchg(asm.W64, b.ringWord(ring.TailOff), asm.CX)
	b.Jmp(retry)

	b.Bind(stuck)
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, temp(evictTail))
	b.Jcc(asm.NE, claim)
	b.stuck(temp(evictTail), temp(evictCount), retry, lost)
}

// evictTemp is a temporary of evict.
func (b *builder) evictTemp(off int) asm.Mem { return b.frame.temp(b.evictAt + off) }

// countTaken counts the records between evictTail and evictEnd for their probes and at ring.OverOff, unless
// another thread has done so. Changes AX, CX and DX.
func (b *builder) countTaken() {
	temp := b.evictTemp
	loop, all, kind := b.NewLabel(), b.NewLabel(), asm.Indexed(asm.SP, asm.CX, 8, int32(b.frame.under+b.evictAt+evictCount))
	b.Store(asm.W64, temp(evictBX), asm.BX)
	back := b.frame.keep(asm.BX, b.evictAt+evictBX)
	b.Store(asm.W64, temp(evictArea), asm.SI)
	b.StoreImm(asm.W64, temp(evictKind), 0)
	b.StoreImm(asm.W64, temp(evictAll), 0)

	b.Bind(loop)
	b.Load(asm.W64, asm.CX, temp(evictKind))
	b.Load(asm.W64, asm.AX, kind)
	b.Mov(asm.W32, asm.DX, asm.AX)
	b.Test(asm.W32, asm.DX, asm.DX)
	b.JccShort(asm.E, all)
	b.Store(asm.W64, temp(evictNow), asm.DX)
	b.OpStore(asm.Add, asm.W64, temp(evictAll), asm.DX)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
	b.ShiftImm(asm.Shl, asm.W64, asm.AX, uint8(bits.TrailingZeros(ring.TakenSize)))
	second := int32(0)
	if b.evicted != 0 {
		second = ring.TakenSeq
	}
	b.Lea(asm.SI, asm.Indexed(asm.SI, asm.AX, 1, int32(b.p.TakenOff)+second))
	b.countUpTo(asm.At(asm.SI, 0))
	b.Load(asm.W64, asm.SI, temp(evictArea))
	b.IncMem(asm.W64, temp(evictKind))
	b.OpMemImm(asm.Cmp, asm.W64, temp(evictKind), evictKinds)
	b.JccShort(asm.B, loop)

	b.Bind(all)
	b.Load(asm.W64, asm.DX, temp(evictAll))
	b.Store(asm.W64, temp(evictNow), asm.DX)
	b.countUpTo(b.ringWord(ring.OverOff))
	b.Load(asm.W64, asm.BX, temp(evictBX))
	back()
}

// countUpTo adds evictNow to a count, and sets the position behind the count to evictEnd. It does nothing if
// that position is beyond evictTail already. Changes AX, BX, CX and DX.
func (b *builder) countUpTo(count asm.Mem) {
	done := b.NewLabel()
	again := b.Mark()
	b.Load(asm.W64, asm.AX, count)
	b.Load(asm.W64, asm.DX, count.Plus(8))
	b.OpLoad(asm.Cmp, asm.W64, asm.DX, b.evictTemp(evictTail))
	b.JccShort(asm.A, done)
	b.Mov(asm.W64, asm.BX, asm.AX)
	b.OpLoad(asm.Add, asm.W64, asm.BX, b.evictTemp(evictNow))
	b.Load(asm.W64, asm.CX, b.evictTemp(evictEnd))
	b.Lock()
	b.Cmpxchg16b(count)
	b.Jcc(asm.NE, again)
	b.Bind(done)
}

// recordAt loads the state word of the record at position CX into AX, or continues at none if no record with
// that position is there.
func (b *builder) recordAt(none asm.Label) {
	b.Mov(asm.W64, asm.AX, asm.CX)
	b.OpLoad(asm.And, asm.W64, asm.AX, b.ringWord(ring.MaskOff))
	b.OpLoad(asm.Add, asm.W64, asm.AX, b.ringWord(ring.DataPtr))
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, asm.At(asm.AX, 0))
	b.Jcc(asm.NE, none)
	b.Load(asm.W32, asm.AX, asm.At(asm.AX, ring.StampSize+ring.StateOff))
}

// recordSize computes from the state word in AX the record's size in bytes, with the stamp, into DX, and its
// probe into AX. It continues at none if the word can't be a record's.
func (b *builder) recordSize(none asm.Label) {
	b.Mov(asm.W32, asm.DX, asm.AX)
	b.sizeOf(true, &none)
	b.OpImm(asm.Add, asm.W32, asm.DX, ring.StampSize)
	b.OpImm(asm.And, asm.W32, asm.AX, ring.MaxID)
	area := int64(1) << b.p.AreaShift
	b.OpImm(asm.Cmp, asm.W32, asm.AX, int32(min((area-ring.CountersOff)/ring.CounterSize, (area-b.p.TakenOff)/ring.TakenSize)))
	b.Jcc(asm.AE, none)
}

// stuck is evict if there is an unfinished record at the tail. CX and tail have the tail; given is a
// temporary.
func (b *builder) stuck(tail, given asm.Mem, retry, lost asm.Label) {
	same, unknown, next, move := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, b.ringWord(ring.TailOff))
	b.Jcc(asm.NE, retry) // another thread has moved the tail
	b.tsc()
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, ring.StuckShift)
	b.Lea(asm.DX, asm.At(asm.CX, 1)) // plus 1, because 0 means none
	b.OpLoad(asm.Cmp, asm.W64, asm.DX, b.ringWord(ring.StuckOff))
	b.Jcc(asm.E, same)
	b.StoreImm(asm.W64, b.ringWord(ring.StuckTry), 0)
	b.Store(asm.W64, b.ringWord(ring.StuckLast), asm.AX)
	b.Store(asm.W64, b.ringWord(ring.StuckOff), asm.DX) // written last: it makes the other words valid
	b.Jmp(lost)

	// Each period counts once, for the first thread that meets it. A thread that comes late, to the
	// words of another tail, subtracts what was counted, and adds at most one.
	b.Bind(same)
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.Load(asm.W64, asm.AX, b.ringWord(ring.StuckLast))
	b.Op(asm.Cmp, asm.W64, asm.DX, asm.AX)
	b.Jcc(asm.BE, lost) // negative: the time stamp counters of two CPUs may differ
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

	// Not even the record's length is known. The next record is at the next position whose stamp says
	// so; if there is none, all records are given up.
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
