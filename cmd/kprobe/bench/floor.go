package bench

import "kprobe/probe/asm"

// floorKind is what a hand-written detour does.
type floorKind int

const (
	noFloor       floorKind = iota
	floorCount              // counts
	floorEntry              // records thread, time and two arguments
	floorReturn             // records thread, time and the result
	floorLatency            // that, and takes the time at entry too
	floorBoth               // floorEntry and floorReturn, two records
	floorTime               // takes the time
	floorSeqCount           // as those above, in restartable sequences
	floorSeqEntry
	floorSeqReturn
	floorSeqLatency
	floorSeqBoth
	floorStop  // a stop by ptrace
	floorStep  // a stop, and one more after a single step
	floorStops // two stops, as at entry and return
	floorKinds
)

func (k floorKind) name() string {
	return [...]string{"", "floor_count", "floor_entry", "floor_return", "floor_latency", "floor_both",
		"floor_time", "floor_seq_count", "floor_seq_entry", "floor_seq_return", "floor_seq_latency", "floor_seq_both", "floor_stop", "floor_step", "floor_stops"}[k]
}

// what describes it for the report.
func (k floorKind) what() string {
	return [...]string{
		floorCount: "by hand: counted only", floorEntry: "by hand: entry, 2 arguments",
		floorReturn: "by hand: return", floorLatency: "by hand: return, time at entry too",
		floorBoth: "by hand: entry, 2 arguments, and return", floorTime: "by hand: the time stamp (rdtsc) alone",
		floorSeqCount: "in a restartable sequence: counted only", floorSeqEntry: "in a restartable sequence: entry, 2 arguments",
		floorSeqReturn: "in restartable sequences: return", floorSeqLatency: "in restartable sequences: return, time at entry too",
		floorSeqBoth: "in restartable sequences: entry, 2 arguments, and return", floorStop: "by hand: ptrace, a stop",
		floorStep: "by hand: ptrace, a stop and a single step", floorStops: "by hand: ptrace, two stops",
	}[k]
}

// stops reports whether it is a tracer that does it.
func (k floorKind) stops() bool { return k >= floorStop }

// returns reports whether a detour sees the return, too.
func (k floorKind) returns() bool { k = k.locked(); return k >= floorReturn && k <= floorBoth }

// sequenced is the floor that does the same in restartable sequences, without a locked
// instruction; noFloor if there is none.
func (k floorKind) sequenced() floorKind {
	if k < floorCount || k > floorBoth {
		return noFloor
	}
	return k - floorCount + floorSeqCount
}

// inSequences reports whether it is one of those.
func (k floorKind) inSequences() bool { return k >= floorSeqCount && k <= floorSeqBoth }

// locked is what sequenced has been called of.
func (k floorKind) locked() floorKind {
	if k.inSequences() {
		return k - floorSeqCount + floorCount
	}
	return k
}

// A ring of the floor, one for each CPU, and a record in it.
const (
	ringBytes = 128
	ringHead  = 0
	ringTail  = 8
	ringMask  = 16
	ringData  = 24
	ringHits  = 32
	ringSize  = 1 << 20

	recordSize = 40
	recordTID  = 4
	recordTime = 8
	recordA    = 16
	recordB    = 24
	recordHead = recordSize<<16 | 1

	// A thread's pool of return instances, in its control block: its head, and its
	// one instance.
	poolHead   = 0x400
	poolReturn = 0x448
	poolSP     = 0x450
	poolTime   = 0x458
)

// floor writes a copy of work whose first instruction is replaced by a jump to
// a detour, and that detour. The detour skips no red zone and trusts that work
// is all that it serves; a product has to do more.
func (w *writer) floor(k floorKind) {
	detour, back, trampoline := w.NewLabel(), w.NewLabel(), w.NewLabel()
	w.fn(k.name(), func() {
		w.Jmp(detour) // forward, so a near one, as a probe's
		w.Nop(2)
		w.Bind(back)
		w.Op(asm.Xor, asm.W64, asm.AX, asm.SI)
		w.Ret()
	})
	w.Align(64, 0xcc)
	w.Bind(detour)
	for _, r := range []asm.Reg{asm.AX, asm.CX, asm.DX, asm.SI} {
		w.Push(r)
	}
	w.Lahf()
	w.Set(asm.O, asm.AX)
	w.Push(asm.AX)
	const savedSI, savedReturn = 8, 40
	if do := k.locked(); do == floorEntry || do == floorBoth {
		w.record(k, func() {
			w.Store(asm.W64, asm.At(asm.CX, recordA), asm.DI)
			w.Load(asm.W64, asm.AX, asm.At(asm.SP, savedSI))
			w.Store(asm.W64, asm.At(asm.CX, recordB), asm.AX)
		})
	}
	switch k.locked() {
	case floorCount:
		if k.inSequences() {
			w.sequence(func() { w.IncMem(asm.W64, asm.At(asm.SI, ringHits)) })
			break
		}
		w.ring()
		w.Lock()
		w.IncMem(asm.W64, asm.At(asm.SI, ringHits))
	case floorTime:
		w.Load(asm.W64, asm.CX, asm.SegAbs(asm.FS, selfAt))
		w.stamp(poolTime)
	case floorEntry:
	default:
		w.Load(asm.W64, asm.CX, asm.SegAbs(asm.FS, selfAt))
		w.bump(k)
		w.Load(asm.W64, asm.AX, asm.At(asm.SP, savedReturn))
		w.Store(asm.W64, asm.At(asm.CX, poolReturn), asm.AX)
		w.Store(asm.W64, asm.At(asm.CX, poolSP), asm.SP)
		if k.locked() == floorLatency {
			w.stamp(poolTime)
		}
		w.Lea(asm.AX, asm.Rel(trampoline))
		w.Store(asm.W64, asm.At(asm.SP, savedReturn), asm.AX)
	}
	w.Pop(asm.AX)
	w.Raw(0x04, 0x7f) // add al, 127: overflow again, if it was
	w.Sahf()
	for _, r := range []asm.Reg{asm.SI, asm.DX, asm.CX, asm.AX} {
		w.Pop(r)
	}
	w.work0()
	w.Jmp(back)
	w.Bind(trampoline)
	if k.returns() {
		w.land(k)
	}
	w.descriptions()
}

// record writes a record; values stores what it has besides the thread and the time at
// CX, and may change AX.
func (w *writer) record(k floorKind, values func()) {
	if k.inSequences() {
		w.recordInSequence(values)
		return
	}
	w.ring()
	w.reserve()
	values()
	w.stamp(recordTime)
	w.StoreImm(asm.W32, asm.At(asm.CX, 0), recordHead)
}

// trapped writes a copy of work with an int3 of its own before its first
// instruction, and one before it returns if it is to stop twice.
func (w *writer) trapped(k floorKind) {
	w.fn(k.name(), func() {
		w.Int3()
		w.work0()
		w.Op(asm.Xor, asm.W64, asm.AX, asm.SI)
		if k == floorStops {
			w.Int3()
		}
		w.Ret()
	})
}

// land is where work returns to.
func (w *writer) land(k floorKind) {
	w.Push(asm.AX)
	w.Push(asm.DX)
	w.record(k, func() {
		w.Load(asm.W64, asm.AX, asm.At(asm.SP, 8))
		w.Store(asm.W64, asm.At(asm.CX, recordA), asm.AX)
	})
	w.Load(asm.W64, asm.CX, asm.SegAbs(asm.FS, selfAt))
	w.Load(asm.W64, asm.R11, asm.At(asm.CX, poolReturn))
	w.bump(k)
	w.Pop(asm.DX)
	w.Pop(asm.AX)
	w.JmpReg(asm.R11)
}

// ring gives SI the ring of this CPU.
func (w *writer) ring() {
	w.Rdpid(asm.SI)
	w.OpImm(asm.And, asm.W32, asm.SI, 0xfff)
	w.ShiftImm(asm.Shl, asm.W64, asm.SI, 7)
	w.inRings()
}

func (w *writer) inRings() {
	w.MovAbs(asm.CX, w.data.rings)
	w.Op(asm.Add, asm.W64, asm.SI, asm.CX)
}

// reserve gives CX a record in the ring at SI, as if its reader kept up.
func (w *writer) reserve() {
	retry := w.Mark()
	full := w.NewLabel()
	w.Load(asm.W64, asm.AX, asm.At(asm.SI, ringHead))
	w.Lea(asm.CX, asm.At(asm.AX, recordSize))
	w.Mov(asm.W64, asm.DX, asm.CX)
	w.OpLoad(asm.Sub, asm.W64, asm.DX, asm.At(asm.SI, ringTail))
	w.OpLoad(asm.Cmp, asm.W64, asm.DX, asm.At(asm.SI, ringMask))
	w.JccShort(asm.A, full)
	w.Lock()
	w.Cmpxchg(asm.W64, asm.At(asm.SI, ringHead), asm.CX)
	w.Jcc(asm.NE, retry)
	w.Store(asm.W64, asm.At(asm.SI, ringTail), asm.CX)
	w.Bind(full)
	w.OpLoad(asm.And, asm.W64, asm.AX, asm.At(asm.SI, ringMask))
	w.Mov(asm.W64, asm.CX, asm.AX)
	w.OpLoad(asm.Add, asm.W64, asm.CX, asm.At(asm.SI, ringData))
	w.Load(asm.W32, asm.AX, asm.SegAbs(asm.FS, tidAt))
	w.Store(asm.W32, asm.At(asm.CX, recordTID), asm.AX)
}

// stamp stores the time stamp counter at CX+off.
func (w *writer) stamp(off int32) {
	w.Rdtsc()
	w.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	w.Op(asm.Or, asm.W64, asm.AX, asm.DX)
	w.Store(asm.W64, asm.At(asm.CX, off), asm.AX)
}

// bump takes or frees the pool's instance: an exchange of its head, which in the way of
// sequences nobody else writes.
func (w *writer) bump(k floorKind) {
	if k.inSequences() {
		w.IncMem(asm.W64, asm.At(asm.CX, poolHead))
		return
	}
	w.Load(asm.W64, asm.AX, asm.At(asm.CX, poolHead))
	again := w.Mark()
	w.Lea(asm.DX, asm.At(asm.AX, 1))
	w.Lock()
	w.Cmpxchg(asm.W64, asm.At(asm.CX, poolHead), asm.DX)
	w.Jcc(asm.NE, again)
}
