package detour

import (
	"math/bits"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// lslCPU is the selector of the segment whose limit has the CPU's number (the kernel's __CPUNODE_SEG,
// arch/x86/include/asm/segment.h).
const lslCPU = 0x7b

// area sets SI to the address of the CPU's area, and AX to that of CPU 0. The mask keeps any number in bounds.
// A thread that moves to another CPU after this continues to use the old one's ring.
func (b *builder) area() {
	b.cpuNumber()
	b.areaOf()
}

// areaOf is area for the CPU whose number is in SI.
func (b *builder) areaOf() {
	b.OpImm(asm.And, asm.W32, asm.SI, int32(b.p.CPUMask))
	b.writtenHalf(asm.AX)
	w := asm.W64
	if bits.Len32(b.p.areas()-1)+int(b.p.AreaShift) <= 32 {
		w = asm.W32
	}
	b.ShiftImm(asm.Shl, w, asm.SI, b.p.AreaShift)
	b.MovAbs(asm.AX, b.p.PerCPU)
	b.Op(asm.Add, asm.W64, asm.SI, asm.AX)
}

// writtenHalf replaces SI, a CPU's number, by the number of that one of its two areas that is written now.
// Changes tmp.
func (b *builder) writtenHalf(tmp asm.Reg) {
	if !b.p.Spare {
		return
	}
	b.MovAbs(tmp, b.p.Control+ring.ControlSwaps)
	b.OpLoad(asm.Add, asm.W32, asm.SI, asm.At(tmp, 0))
	b.OpImm(asm.And, asm.W32, asm.SI, int32(b.p.areas()-1))
}

// areas is the number of areas of CPUs, a power of two.
func (p *Params) areas() uint32 {
	if p.Spare {
		return 2 * (p.CPUMask + 1)
	}
	return p.CPUMask + 1
}

// unless continues at off if the probe is switched off. perCPU says that AX has the value that area has set.
// Changes AX. If hits are taken in sequences, it sets CX to the address of the probe's flags instead.
func (b *builder) unless(id uint32, perCPU bool, off asm.Label) {
	gate := b.p.Gate
	if b.triggers() {
		gate = b.p.Alive
	}
	b.unlessBy(id, gate, perCPU, off)
}

// unlessLeft is unless for the entry of a call whose return is the hit. It doesn't test the gate, because the
// gate's state at the return decides.
func (b *builder) unlessLeft(id uint32, off asm.Label) { b.unlessBy(id, b.p.Alive, false, off) }

func (b *builder) unlessBy(id uint32, gate uint64, perCPU bool, off asm.Label) {
	at := b.p.Flags + 4*uint64(id)
	m, near := asm.At(asm.AX, 0), false
	if b.seq {
		m = asm.At(asm.CX, 0)
		b.MovAbs(asm.CX, at)
	} else if far := int64(at - b.p.PerCPU); perCPU && fits(far) {
		m, near = asm.At(asm.AX, int32(far)), true
	} else {
		b.MovAbs(asm.AX, at)
	}
	b.TestMemImm(asm.W8, m, ring.FlagEnabled)
	b.Jcc(asm.E, off)
	if gate == 0 {
		return
	}
	if far := int64(gate - b.p.PerCPU); near && fits(far) {
		m = asm.At(asm.AX, int32(far))
	} else {
		b.MovAbs(asm.AX, gate)
		m = asm.At(asm.AX, 0)
	}
	b.OpMemImm(asm.Cmp, asm.W8, m, 0)
	b.Jcc(asm.E, off)
}

// cpuNumber sets the low twelve bits of SI to the CPU's number. Changes AX.
func (b *builder) cpuNumber() {
	if b.p.Rdpid {
		b.Rdpid(asm.SI)
		return
	}
	b.MovImm(asm.AX, lslCPU)
	b.Lsl(asm.SI, asm.AX)
}

// likelyCPU is cpuNumber for places that no value comes from: which stripe or ring a thread uses.
// Without rdpid it takes the number from the thread's rseq area, as a sequence does: in real
// programs lsl, which reads a descriptor, can cost as much as a whole hit. Changes AX.
func (b *builder) likelyCPU() {
	if b.p.Rdpid || !b.p.countsInSequences() {
		b.cpuNumber()
		return
	}
	foreign, known := b.NewLabel(), b.NewLabel()
	b.controlBlock(foreign)
	b.mayAsk(AskNothing, foreign)
	b.Load(asm.W32, asm.SI, b.inArea(rseqCPU))
	b.Test(asm.W32, asm.SI, asm.SI)
	b.Jcc(asm.S, foreign)
	b.Bind(known)
	b.later(func() {
		b.Bind(foreign)
		b.cpuNumber()
		b.Jmp(known)
	})
}

// count increments a counter of a probe. took is called where this has been done. If seq is set, it does so in a
// sequence, else SI is the CPU's area. Changes AX and, in a sequence, SI.
func (b *builder) count(id uint32, counter int, seq bool, took func()) {
	if seq {
		b.countInSequence(id, counter, 0, took)
		return
	}
	b.countLocked(id, counter)
	took()
}

// countLocked increments a counter of a probe in the area at SI, by a locked instruction.
func (b *builder) countLocked(id uint32, counter int) {
	b.Lock()
	b.IncMem(asm.W64, counterAt(id, counter))
}

// counterAt is a counter of a probe in the area at SI.
func counterAt(id uint32, counter int) asm.Mem { return asm.At(asm.SI, int32(counterOff(id, counter))) }

// counterOff is the offset of a counter in a CPU's area.
func counterOff(id uint32, counter int) int {
	return ring.CountersOff + int(id)*ring.CounterSize + counter
}

// reserve reserves room for the record, and sets CX to its address. The size is fixed or, with texts, that of the
// data in layout.total. If there is no room, the hit is lost, and the code continues at done.
func (b *builder) reserve(done asm.Label) {
	id := b.probe.ID
	lost := b.NewLabel()
	b.frame.writing(Reserving)
	fixed := ring.Units(b.prog.Fixed + b.tailSize())
	if b.layout.texts {
		// R8 = bytes, R9 = state word
		b.recordBytes()
		b.lengthBits(asm.R9, b.isLong())
		b.OpImm(asm.Or, asm.W32, asm.R9, int32(id))
		if b.returnTail {
			b.Store(asm.W32, b.frame.temp(b.layout.state), asm.R9)
		}
	}
	behind := asm.At(asm.AX, int32(fixed*ring.Unit)+b.stampSize())
	texts := b.layout.texts
	if texts {
		behind = asm.Indexed(asm.AX, asm.R8, 1, b.stampSize())
	}
	state := func() {
		if texts {
			b.Store(asm.W32, asm.At(asm.CX, ring.StateOff), asm.R9)
		} else {
			b.StoreImm(asm.W32, asm.At(asm.CX, ring.StateOff), int32(ring.StateWord(id, fixed)))
		}
	}
	temps := b.layout.evict
	locked := func() {
		retry := b.claim(behind, lost)
		b.later(func() {
			b.Bind(lost)
			b.frame.writing(NotWriting)
			// If the head has moved meanwhile, the head and tail that were compared are of
			// different times, and the ring may not be full.
			b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.SI, ring.HeadOff))
			b.Jcc(asm.NE, retry)
			if b.p.Overwrite {
				full := b.NewLabel()
				b.evict(0, temps, retry, full)
				b.Bind(full)
			}
			b.countLocked(id, ring.CounterLost)
			b.Jmp(done)
		})
		b.frame.took()
		state()
		b.frame.writing(Open)
		b.stampRecord()
		b.tid()
	}
	if b.seq {
		b.reserveInSequence(id, room{texts, int32(fixed * ring.Unit)}, b.flagged(), state, locked, done)
	} else {
		locked()
	}
	b.Store(asm.W32, asm.At(asm.CX, ring.TIDOff), asm.AX)
	if b.layout.where >= 0 {
		b.Store(asm.W64, b.frame.temp(b.layout.where), asm.SI)
	}
}

// stampSize is the size of the stamp before a record, in bytes.
func (b *builder) stampSize() int32 {
	if b.p.Overwrite {
		return ring.StampSize
	}
	return 0
}

// stampRecord writes the stamp of the record at CX, whose position is in DX.
func (b *builder) stampRecord() {
	if b.p.Overwrite {
		b.Store(asm.W64, asm.At(asm.CX, -ring.StampSize), asm.DX)
	}
}

// behindStamp advances CX from a record's stamp to the record.
func (b *builder) behindStamp() {
	if b.p.Overwrite {
		b.OpImm(asm.Add, asm.W64, asm.CX, ring.StampSize)
	}
}

// claim moves the ring's head, in AX, to behind, and sets CX to the address of the record between. If there is
// no room, it continues at lost. The code there jumps to retry if the head has moved meanwhile. If
// records have stamps, DX becomes the record's position; else it is undefined.
func (b *builder) claim(behind asm.Mem, lost asm.Label) (retry asm.Label) {
	retry = b.Mark()
	b.Load(asm.W64, asm.AX, asm.At(asm.SI, ring.HeadOff))
	b.Lea(asm.CX, behind)
	b.Lea(asm.DX, asm.At(asm.CX, -1)) // minus 1, so that a ring may be filled to the last byte
	b.OpLoad(asm.Sub, asm.W64, asm.DX, asm.At(asm.SI, ring.TailOff))
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, uint8(bits.TrailingZeros64(uint64(b.p.RingSize))))
	b.Jcc(asm.NE, lost)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.SI, ring.HeadOff), asm.CX)
	b.Jcc(asm.NE, retry)
	if b.p.Overwrite {
		b.Mov(asm.W64, asm.DX, asm.AX)
	}
	b.OpLoad(asm.And, asm.W64, asm.AX, asm.At(asm.SI, ring.MaskOff))
	b.Mov(asm.W64, asm.CX, asm.AX)
	b.OpLoad(asm.Add, asm.W64, asm.CX, asm.At(asm.SI, ring.DataPtr))
	b.behindStamp()
	return retry
}

// recordBytes sets R8 to the size of the record of a program with texts. lengthBits rounds it.
func (b *builder) recordBytes() {
	more := ring.HeaderSize + ring.Unit - 1 + b.tailSize()
	if b.layout.only >= 0 {
		b.LoadZX(asm.W16, asm.R8, b.frame.temp(b.layout.only+textWord+4))
		more += b.prog.Fixed
	} else {
		b.Load(asm.W64, asm.R8, b.frame.temp(b.layout.total))
	}
	b.OpImm(asm.Add, asm.W64, asm.R8, int32(more))
}

// stateShift is the number of bits by which a size in bytes up to ring.ExactSize, a multiple of ring.Unit, is
// shifted left to the length bits of a state word. sizeMask has the bits of such a size. Beyond it, size - farther
// counts parts of coarser of the size.
const (
	stateShift = ring.LengthShift - 3 // a unit has eight bytes
	sizeMask   = ring.LengthMask * ring.Unit
	coarser    = ring.CoarseUnit / ring.Unit
	farther    = ring.ExactSize * (coarser - 1)
)

// lengthBits sets dst to the length bits of a state word for a record of R8 bytes, and rounds R8: first down to a
// multiple of ring.Unit, then up to the size of a record. long says that it may be more than ring.ExactSize.
func (b *builder) lengthBits(dst asm.Reg, long bool) {
	b.OpImm(asm.And, asm.W64, asm.R8, -ring.Unit)
	b.Mov(asm.W64, dst, asm.R8)
	if long {
		exact := b.NewLabel()
		b.OpImm(asm.Cmp, asm.W64, asm.R8, ring.ExactSize)
		b.JccShort(asm.BE, exact)
		b.OpImm(asm.Add, asm.W64, asm.R8, ring.CoarseUnit-1)
		b.OpImm(asm.And, asm.W64, asm.R8, -ring.CoarseUnit)
		b.Lea(dst, asm.At(asm.R8, farther))
		b.ShiftImm(asm.Shr, asm.W64, dst, uint8(bits.TrailingZeros(coarser)))
		b.Bind(exact)
	}
	b.ShiftImm(asm.Shl, asm.W64, dst, stateShift)
}

// isLong reports whether the program's record may have more than ring.ExactSize bytes.
func (b *builder) isLong() bool { return ring.HeaderSize+most(b.prog)+b.tailSize() > ring.ExactSize }

// sizeOf changes DX from a state word to the record's size in bytes. If none is set, it continues there for a
// size that no record has. long says that it may be more than ring.ExactSize.
func (b *builder) sizeOf(long bool, none *asm.Label) {
	b.ShiftImm(asm.Shr, asm.W32, asm.DX, stateShift)
	b.OpImm(asm.And, asm.W32, asm.DX, sizeMask)
	if none != nil {
		b.Jcc(asm.E, *none)
	}
	if !long {
		return
	}
	exact := b.NewLabel()
	b.OpImm(asm.Cmp, asm.W32, asm.DX, ring.ExactSize)
	b.JccShort(asm.BE, exact)
	b.ShiftImm(asm.Shl, asm.W32, asm.DX, uint8(bits.TrailingZeros(coarser)))
	b.OpImm(asm.Sub, asm.W32, asm.DX, farther)
	if none != nil {
		b.OpImm(asm.Cmp, asm.W32, asm.DX, ring.MaxRecord)
		b.Jcc(asm.A, *none)
	}
	b.Bind(exact)
}

// commit stamps the record at CX and makes it visible.
func (b *builder) commit() {
	if b.returnTail {
		b.tail()
	}
	times := []asm.Mem{asm.At(asm.CX, ring.TimeOff)}
	for _, off := range b.layout.times {
		times = append(times, data(off))
	}
	b.stamp(times...)
	b.endsAtStamp(len(times) > 1)
	b.frame.writing(Committing)
	defer b.frame.writing(NotWriting)
	if b.layout.texts {
		// The state word's highest bit commits the record. No other thread writes the word.
		b.OpMemImm(asm.Or, asm.W8, asm.At(asm.CX, ring.StateOff+3), -1<<7)
		return
	}
	w := ring.CommitWord(b.probe.ID, ring.Units(b.prog.Fixed+b.tailSize()))
	b.StoreImm(asm.W32, asm.At(asm.CX, ring.StateOff), int32(w))
}

func (b *builder) tailSize() int {
	if b.returnTail {
		return ReturnTail
	}
	return 0
}

// tail writes the return address into the record's last word. Changes AX, DX.
func (b *builder) tail() {
	b.ip()
	if !b.layout.texts {
		b.Store(asm.W64, data(ring.Padded(b.prog.Fixed+ReturnTail)-ReturnTail), asm.AX)
		return
	}
	b.Load(asm.W32, asm.DX, b.frame.temp(b.layout.state))
	b.sizeOf(b.isLong(), nil)
	b.Store(asm.W64, asm.Indexed(asm.CX, asm.DX, 1, -ReturnTail), asm.AX)
}
