package detour

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Hits without locks
//
// Apart from the time stamp, a locked instruction is most of the cost of a hit. If the
// program's threads have an rseq area (rseq(2), which glibc registers for each thread since
// 2.35), a detour counts, and reserves room for a record, in a restartable sequence. If the
// thread is moved to another CPU, interrupted by a signal, or displaced by another thread in
// the middle of the sequence, the kernel leads it elsewhere. So nobody else on that CPU sees
// its changes of the CPU's memory half done. Only threads that run on the CPU write that
// memory: each CPU has counters and a ring for sequences alone (ring.CounterSeq, ring.SeqOff),
// beside those that anybody writes by locked instructions. The reader reads both.
//
//	look:   is this a thread of the C library's, in no sequence? no: locked
//	        area.rseq_cs = description
//	start:  the memory of area.cpu_id, if that may have sequences; what is to be changed;
//	        the last instruction changes it
//	end:    area.rseq_cs = 0
//	…
//	locked: the same by locked instructions, on the memory that is anybody's
//
// A sequence only reserves room: eight instructions, no load that may fault, no time stamp. The
// record is written and committed after it, as in any other ring. So long texts and stacks
// restart nothing, faults are answered as usual, and a reader that has seen no reservation
// knows that every later record has a later time.
//
//   - A sequence that is aborted isn't begun again: its hit goes the locked way, once. So a
//     thread that is stepped, or has a signal at every instruction, comes to the end. It is
//     aborted before its last instruction has had an effect, or not at all.
//   - A thread that is killed in the middle has not hit.
//   - A signal handler finds rseq_cs empty: the kernel clears it when it aborts.
//   - fork: the child has its parent's area, registered. Other processes that write the same
//     rings write them by the same rules.
//   - The program's own sequences: rseq_cs is set only if it is 0, and is 0 again after the
//     sequence. If the program has left an address there, in its own sequence or after it, the
//     hit goes the locked way and nothing is written.
//   - A thread without an area, or one whose fs leads elsewhere, goes the locked way: fs must
//     lead to a block that contains its own address twice, as glibc's does, and whose area says
//     that it is on a CPU. Two kinds of thread could be mistaken: one that has no area yet, and
//     one that has another's block (vfork, raw clone). The tracer sees both before their first
//     instruction, and makes the area say that it has no CPU, or says that no CPU has sequences
//     (ring.SeqCPUs). If there is no tracer, detours beside the system calls do this
//     (births.go).
//   - A thread whose registers the tracer changes in the middle: the kernel clears rseq_cs, or
//     the tracer does if the memory is about to go (tracee.EndSequence).

// RseqSignature must stand before the address to which the kernel leads a thread out of a
// sequence. glibc registers its areas with it.
const RseqSignature = 0x53053053

// Offsets in struct rseq, and the size of struct rseq_cs (include/uapi/linux/rseq.h).
const (
	rseqCPU    = 4
	rseqCS     = 8
	rseqCSSize = 32
	// RseqDescription is the offset of the address of the sequence that a thread is in.
	RseqDescription = rseqCS
)

// blockSelf is an offset in glibc's control block; the block has its own address at 0 and there
// (tcbhead_t, tcb and self).
const blockSelf = 16

// sequences reports whether the current probe takes its hits in sequences. A program that reads the CPU's number
// can't: it reads it once, before room is reserved, and the sequence may run on another CPU.
func (b *builder) sequences() bool {
	return b.p.countsInSequences() && b.probe.Inject == nil && !looksAtCPU(b.prog)
}

// countsInSequences reports whether threads may have the area that sequences need.
func (p *Params) countsInSequences() bool {
	return p.Rseq != 0 && p.TID.Seg == asm.FS && len(p.TID.Path) == 0
}

func looksAtCPU(prog *fetch.Program) bool {
	for q := range prog.Preds() {
		if q.Field == fetch.FieldCPU {
			return true
		}
	}
	of := func(c *fetch.Chain) bool {
		return c != nil && (c.Source == fetch.SourceCPU || c.Source == fetch.SourceComputed && c.From == fetch.SourceCPU)
	}
	return slices.ContainsFunc(prog.Args, func(a fetch.ArgProgram) bool {
		return of(&a.Chain) || of(a.Len) || slices.ContainsFunc(a.Parts, func(p fetch.Part) bool { return of(&p.Chain) })
	})
}

// flagged returns the current probe if CX still points at its flags when the hit is taken, or
// 0.
func (b *builder) flagged() uint32 {
	l := &b.layout
	if b.prog.Filter != nil || b.probe.Control != nil || b.probe.Bins != nil || len(l.early) > 0 || l.bits >= 0 || l.named || l.now >= 0 || l.texts {
		return 0
	}
	return b.probe.ID
}

// flagsOfAll is the address at which the flags of all probes begin.
const flagsOfAll = ^uint32(0)

// sequence emits a restartable sequence: body, whose last instruction is the one that takes
// effect; then took and the end. body may change CX, DX and SI and continue elsewhere by
// leaveSequence. A thread that may not have a sequence, or was interrupted, continues at
// locked, with anything in AX, CX, DX and SI. In body SI is the distance of the CPU's area from
// the first one, and flags(0) the flags of no probe, based on CX.
//
// flagged is the probe at whose flags CX points, or 0, or flagsOfAll.
func (b *builder) sequence(flagged uint32, body func(none asm.Mem), took, locked func()) {
	b.sequenceIn(asm.SI, flagged, body, took, locked)
}

// sequenceIn is sequence with the distance of the CPU's area in a register, SI or DX. If that
// is DX, SI doesn't change, and there are no rings for snapshots.
func (b *builder) sequenceIn(cpu asm.Reg, flagged uint32, body func(none asm.Mem), took, locked func()) {
	b.sequenceOf(cpu, flagged, func(none asm.Mem, _ asm.Label) {
		if cpu == asm.SI {
			b.writtenHalf(asm.DX)
		}
		b.ShiftImm(asm.Shl, asm.W64, cpu, b.p.AreaShift)
		body(none)
	}, took, locked)
}

// sequenceOf is sequenceIn for changes of any memory that is a CPU's own: in body the register has
// the CPU's number. body may leave the sequence at out, from where the thread goes the locked way.
func (b *builder) sequenceOf(cpu asm.Reg, flagged uint32, body func(none asm.Mem, out asm.Label), took, locked func()) {
	aborted, start, end, out := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	none := asm.At(asm.CX, 0)
	switch flagged {
	case 0:
		b.MovAbs(asm.CX, b.p.Flags)
	case flagsOfAll:
	default:
		none = none.Plus(-4 * int32(flagged))
	}
	if b.p.Births != 0 {
		b.MovAbs(asm.DX, b.p.Births)
		b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.DX, 0), 0)
		b.Jcc(asm.NE, aborted)
	}
	b.controlBlock(aborted)
	b.mayAsk(AskNothing, aborted)
	b.OpMemImm(asm.Cmp, asm.W64, b.inArea(rseqCS), 0)
	b.Jcc(asm.NE, aborted)

	b.Lea(asm.DX, asm.Rel(b.description(start, end, aborted)))
	b.Store(asm.W64, b.inArea(rseqCS), asm.DX)
	b.Bind(start)
	b.Load(asm.W32, cpu, b.inArea(rseqCPU))
	b.OpLoad(asm.Cmp, asm.W32, cpu, none)
	b.Jcc(asm.AE, out) // a thread that has no area has a negative number there
	body(none, out)
	b.Bind(end)
	b.later(func() { // at its beginning the hit isn't taken
		b.Bind(out)
		b.endSequence()
		b.Jmp(aborted)
		// An instruction, ud1, that has the signature at its end.
		b.Raw(0x0f, 0xb9, 0x3d)
		b.Data32(RseqSignature)
		b.Bind(aborted)
		locked()
	})
	took()
	b.endSequence()
}

// controlBlock loads the address of the thread's control block into AX, and continues at foreign if
// it isn't glibc's or can't be read.
func (b *builder) controlBlock(foreign asm.Label) {
	b.mayAsk(AskNothing, foreign)
	b.Load(asm.W64, asm.AX, asm.SegAbs(asm.FS, 0))
	b.mayAsk(AskNothing, foreign)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.AX, 0))
	b.Jcc(asm.NE, foreign)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.AX, blockSelf))
	b.Jcc(asm.NE, foreign)
}

// inArea is a word of the thread's rseq area; AX is its control block.
func (b *builder) inArea(off int32) asm.Mem { return asm.At(asm.AX, b.p.Rseq+off) }

// inSequence is a word in the area of the CPU in a sequence. It may change DX.
func (b *builder) inSequence(none asm.Mem, off int) asm.Mem {
	if b.nearFlags(off) {
		return none.Plus(int32(b.p.PerCPU-b.p.Flags)+int32(off)).By(asm.SI, 1)
	}
	b.MovAbs(asm.DX, b.p.PerCPU)
	return asm.Indexed(asm.DX, asm.SI, 1, int32(off))
}

// inSequenceOf is inSequence with the distance of the area in a register. It changes CX, the
// base of none.
func (b *builder) inSequenceOf(cpu asm.Reg, none asm.Mem, off int) asm.Mem {
	if b.nearFlags(off) {
		return none.Plus(int32(b.p.PerCPU-b.p.Flags)+int32(off)).By(cpu, 1)
	}
	b.MovAbs(asm.CX, b.p.PerCPU)
	return asm.Indexed(asm.CX, cpu, 1, int32(off))
}

// nearFlags reports whether a word of the first area can be reached from the flags.
func (b *builder) nearFlags(off int) bool {
	return fits(int64(b.p.PerCPU-b.p.Flags) + int64(off))
}

// endSequence marks the thread as being in no sequence. AX is its control block.
func (b *builder) endSequence() { b.StoreImm(asm.W64, b.inArea(rseqCS), 0) }

// description is a struct rseq_cs.
func (b *builder) description(start, end, aborted asm.Label) asm.Label {
	l := b.NewLabel()
	at := func(l asm.Label) uint64 {
		off, _ := b.Offset(l) // bound by now
		return b.Base() + uint64(off)
	}
	b.consts = append(b.consts, constant{l, func() []byte {
		d := make([]byte, 8, rseqCSSize) // version, flags
		for _, v := range [...]uint64{at(start), at(end) - at(start), at(aborted)} {
			d = binary.LittleEndian.AppendUint64(d, v)
		}
		return d
	}})
	return l
}

// countInSequence is count. Changes AX, CX, DX and SI.
func (b *builder) countInSequence(id uint32, counter int, flagged uint32, took func()) {
	back := b.NewLabel()
	b.sequence(flagged, func(none asm.Mem) {
		b.IncMem(asm.W64, b.inSequence(none, counterOff(id, counter+ring.CounterSeq)))
	}, took, func() {
		b.area()
		b.countLocked(id, counter)
		took()
		b.Jmp(back)
	})
	b.Bind(back)
}

// room is the size of a record for which room is to be reserved: R8 bytes, or a fixed number.
type room struct {
	inR8  bool
	bytes int32
}

// reserveInSequence reserves room for a record in a sequence; state emits the code that writes its state word. It
// sets AX to the thread's number, CX to the record and SI to the CPU's area. locked emits the same by
// locked instructions, with the area in SI. Changes DX.
func (b *builder) reserveInSequence(id uint32, n room, flagged uint32, state, locked func(), done asm.Label) {
	full, unknown, back := b.NewLabel(), b.NewLabel(), b.NewLabel()
	again := b.Mark()
	b.sequence(flagged, func(none asm.Mem) {
		b.Lea(asm.SI, b.inSequence(none, 0))
		b.Load(asm.W64, asm.DX, asm.At(asm.SI, ring.SeqOff+ring.HeadOff))
		if n.inR8 {
			b.Op(asm.Add, asm.W64, asm.DX, asm.R8)
			if b.p.Overwrite {
				b.OpImm(asm.Add, asm.W64, asm.DX, ring.StampSize)
			}
		} else {
			b.OpImm(asm.Add, asm.W64, asm.DX, n.bytes+b.stampSize())
		}
		b.Lea(asm.CX, asm.At(asm.DX, -1)) // as in claim
		b.OpLoad(asm.Sub, asm.W64, asm.CX, asm.At(asm.SI, ring.SeqOff+ring.TailOff))
		b.ShiftImm(asm.Shr, asm.W64, asm.CX, uint8(bits.TrailingZeros64(uint64(b.p.RingSize))))
		b.Jcc(asm.NE, full)
		b.Store(asm.W64, asm.At(asm.SI, ring.SeqOff+ring.HeadOff), asm.DX)
	}, func() {}, func() {
		b.area()
		locked()
		b.Jmp(back)
	})
	if n.inR8 {
		b.Mov(asm.W64, asm.CX, asm.DX)
		b.Op(asm.Sub, asm.W64, asm.CX, asm.R8)
		if b.p.Overwrite {
			b.OpImm(asm.Sub, asm.W64, asm.CX, ring.StampSize)
		}
	} else {
		b.Lea(asm.CX, asm.At(asm.DX, -n.bytes-b.stampSize()))
	}
	if b.p.Overwrite {
		b.Mov(asm.W64, asm.DX, asm.CX)
	}
	b.OpLoad(asm.And, asm.W64, asm.CX, asm.At(asm.SI, ring.SeqOff+ring.MaskOff))
	b.OpLoad(asm.Add, asm.W64, asm.CX, asm.At(asm.SI, ring.SeqOff+ring.DataPtr))
	b.behindStamp()
	b.frame.took()
	state()
	b.frame.writing(Open)
	b.stampRecord()
	b.Load(asm.W32, asm.AX, asm.At(asm.AX, b.p.TID.Off)) // in the control block that was verified
	b.Test(asm.W32, asm.AX, asm.AX)
	b.Jcc(asm.E, unknown)
	b.Bind(back)
	temps, overwrite := b.layout.evict, b.p.Overwrite
	b.later(func() {
		b.Bind(full)
		b.frame.writing(NotWriting)
		b.endSequence()
		if overwrite {
			retry, none := b.NewLabel(), b.NewLabel()
			b.evict(ring.SeqOff, temps, retry, none)
			b.Bind(retry)
			if flagged != 0 {
				b.MovAbs(asm.CX, b.p.Flags+4*uint64(flagged))
			}
			b.Jmp(again)
			b.Bind(none)
		}
		b.countLocked(id, ring.CounterLost)
		b.Jmp(done)
	})
	b.later(func() {
		b.Bind(unknown)
		b.ask(back)
	})
}
