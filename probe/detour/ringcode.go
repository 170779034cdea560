package detour

import (
	"math/bits"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// lslCPU is the selector whose limit names the CPU (the kernel's
// __CPUNODE_SEG, arch/x86/include/asm/segment.h).
const lslCPU = 0x7b

// area makes SI the address of the CPU's area and AX that of the first one. The
// mask keeps any answer in bounds; a thread that moves to another CPU afterwards
// goes on with the old one's ring.
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

// writtenHalf makes SI, a CPU's number, that of its area that is written. Changes tmp.
func (b *builder) writtenHalf(tmp asm.Reg) {
	if !b.p.Spare {
		return
	}
	b.MovAbs(tmp, b.p.Control+ring.ControlSwaps)
	b.OpLoad(asm.Add, asm.W32, asm.SI, asm.At(tmp, 0))
	b.OpImm(asm.And, asm.W32, asm.SI, int32(b.p.areas()-1))
}

// areas is how many areas of CPUs there are, a power of two.
func (p *Params) areas() uint32 {
	if p.Spare {
		return 2 * (p.CPUMask + 1)
	}
	return p.CPUMask + 1
}

// unless goes on at off if the probe is switched off. perCPU says that AX is as
// area leaves it. Changes AX, or, where hits are taken in sequences, makes CX the
// address of the probe's flags.
func (b *builder) unless(id uint32, perCPU bool, off asm.Label) {
	gate := b.p.Gate
	if b.triggers() {
		gate = b.p.Alive
	}
	b.unlessBy(id, gate, perCPU, off)
}

// unlessLeft is unless for the entry of a call whose return is the hit: what the gate is
// then decides.
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

// cpuNumber makes the low twelve bits of SI the CPU's number. Changes AX.
func (b *builder) cpuNumber() {
	if b.p.Rdpid {
		b.Rdpid(asm.SI)
		return
	}
	b.MovImm(asm.AX, lslCPU)
	b.Lsl(asm.SI, asm.AX)
}

// count adds one to a counter of a probe, in a sequence if seq says so, and calls took
// where that is done. Else SI is the area. Changes AX and, in a sequence, SI.
func (b *builder) count(id uint32, counter int, seq bool, took func()) {
	if seq {
		b.countInSequence(id, counter, 0, took)
		return
	}
	b.countLocked(id, counter)
	took()
}

// countLocked adds one to a counter of a probe in the area at SI.
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

// reserve takes room for the record: CX becomes its address. Its size is
// fixed, or, with texts, that of the data in the layout's total. With none
// free the hit is lost and goes on at done.
func (b *builder) reserve(done asm.Label) {
	id := b.probe.ID
	lost := b.NewLabel()
	fixed := ring.Units(b.prog.Fixed + b.tailSize())
	if b.layout.texts {
		// R8 = bytes, R9 = state word
		b.recordBytes()
		b.OpImm(asm.And, asm.W64, asm.R8, -ring.Unit)
		b.Mov(asm.W64, asm.R9, asm.R8)
		b.ShiftImm(asm.Shl, asm.W64, asm.R9, stateShift)
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
			// A head of long ago lies behind the tail of now: no sign of a full ring.
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

// stampSize is how many bytes stand before a record.
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

// behindStamp makes CX the address of the record of the address of its stamp.
func (b *builder) behindStamp() {
	if b.p.Overwrite {
		b.OpImm(asm.Add, asm.W64, asm.CX, ring.StampSize)
	}
}

// claim moves the ring's head, in AX, to behind and makes CX the address of the
// record between; with no room left it goes on at lost. Whoever finds there that the
// head has moved goes back to retry. DX becomes the position if records have stamps, and else
// anything.
func (b *builder) claim(behind asm.Mem, lost asm.Label) (retry asm.Label) {
	retry = b.Mark()
	b.Load(asm.W64, asm.AX, asm.At(asm.SI, ring.HeadOff))
	b.Lea(asm.CX, behind)
	b.Lea(asm.DX, asm.At(asm.CX, -1)) // a ring may be full to the last byte
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

// recordBytes makes R8 the bytes of the record of a program with texts, which are to
// be rounded down to a multiple of ring.Unit.
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

// stateShift moves a size in bytes, a multiple of ring.Unit, to the length
// bits of a state word.
const stateShift = 16

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
	if b.layout.texts {
		// The state word's highest bit commits; nobody else writes the word.
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

// tail writes the address returned to into the record's last word. Changes AX, DX.
func (b *builder) tail() {
	b.ip()
	if !b.layout.texts {
		b.Store(asm.W64, data(b.prog.Fixed), asm.AX)
		return
	}
	b.Load(asm.W32, asm.DX, b.frame.temp(b.layout.state))
	b.ShiftImm(asm.Shr, asm.W32, asm.DX, stateShift)
	b.OpImm(asm.And, asm.W32, asm.DX, ring.MaxRecord)
	b.Store(asm.W64, asm.Indexed(asm.CX, asm.DX, 1, -ReturnTail), asm.AX)
}
