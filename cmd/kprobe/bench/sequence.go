package bench

import (
	"golang.org/x/sys/unix"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
)

// Restartable sequences of the subject: what C libraries since glibc 2.35 have for each
// thread, and floors that use it.

const (
	sysRseq = 334
	// rseqAt is where a thread's control block has its rseq area, of rseqSize bytes.
	rseqAt   = 0x920
	rseqSize = 32
	// Offsets in struct rseq, include/uapi/linux/rseq.h.
	rseqCPU = 4
	rseqCS  = 8
)

// pendingSequence is a sequence whose description is still to be written.
type pendingSequence struct{ cs, start, end, aborted, again asm.Label }

// register registers the thread's rseq area, or has it say that there is none.
func (w *writer) register(system func(int)) {
	w.Load(asm.W64, asm.DI, asm.SegAbs(asm.FS, selfAt))
	w.OpImm(asm.Add, asm.W64, asm.DI, rseqAt)
	w.StoreImm(asm.W32, asm.At(asm.DI, rseqCPU), -1)
	w.MovImm(asm.SI, rseqSize)
	w.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	w.MovImm(asm.R10, detour.RseqSignature)
	system(sysRseq)
}

// exported are the words by which a C library tells where its threads' areas are.
func (w *writer) exported() {
	w.fn("__rseq_offset", func() { w.Data64(rseqAt) })
	w.fn("__rseq_size", func() { w.Data64(rseqSize) })
}

// sequence emits a sequence that begins again where it is interrupted. SI is the CPU's
// ring in body, which changes it by its last instruction. Changes AX and CX.
func (w *writer) sequence(body func()) {
	p := pendingSequence{w.NewLabel(), w.NewLabel(), w.NewLabel(), w.NewLabel(), w.Mark()}
	w.Lea(asm.AX, asm.Rel(p.cs))
	w.Store(asm.W64, asm.SegAbs(asm.FS, rseqAt+rseqCS), asm.AX)
	w.Bind(p.start)
	w.Load(asm.W32, asm.SI, asm.SegAbs(asm.FS, rseqAt+rseqCPU))
	w.ShiftImm(asm.Shl, asm.W64, asm.SI, 7)
	w.inRings()
	body()
	w.Bind(p.end)
	w.pending = append(w.pending, p)
}

// recordInSequence writes a whole record in a sequence, as if the ring's reader kept up.
func (w *writer) recordInSequence(values func()) {
	full := w.NewLabel()
	w.sequence(func() {
		w.Load(asm.W64, asm.AX, asm.At(asm.SI, ringHead))
		w.Lea(asm.CX, asm.At(asm.AX, recordSize))
		w.OpLoad(asm.Sub, asm.W64, asm.CX, asm.At(asm.SI, ringTail))
		w.OpLoad(asm.Cmp, asm.W64, asm.CX, asm.At(asm.SI, ringMask))
		w.Jcc(asm.A, full)
		w.Store(asm.W64, asm.At(asm.SI, ringTail), asm.AX)
		w.OpLoad(asm.And, asm.W64, asm.AX, asm.At(asm.SI, ringMask))
		w.Mov(asm.W64, asm.CX, asm.AX)
		w.OpLoad(asm.Add, asm.W64, asm.CX, asm.At(asm.SI, ringData))
		w.Load(asm.W32, asm.AX, asm.SegAbs(asm.FS, tidAt))
		w.Store(asm.W32, asm.At(asm.CX, recordTID), asm.AX)
		values()
		w.stamp(recordTime)
		w.StoreImm(asm.W32, asm.At(asm.CX, 0), recordHead)
		w.OpMemImm(asm.Add, asm.W64, asm.At(asm.SI, ringHead), recordSize)
	})
	w.Bind(full)
}

// descriptions writes the descriptions of the sequences that were emitted, and where they
// go on if they are interrupted.
func (w *writer) descriptions() {
	at := func(l asm.Label) uint64 {
		off, _ := w.Offset(l)
		return w.Base() + uint64(off)
	}
	for _, p := range w.pending {
		w.Int3()
		w.Data32(detour.RseqSignature)
		w.Bind(p.aborted)
		w.Jmp(p.again)
		w.Align(rseqSize, 0xcc)
		w.Bind(p.cs)
		for _, v := range []uint64{0, at(p.start), at(p.end) - at(p.start), at(p.aborted)} {
			w.Data64(v)
		}
	}
	w.pending = nil
}

// sequences reports whether the kernel has restartable sequences: it refuses an area of
// no bytes for another reason then.
func sequences() bool {
	_, _, e := unix.RawSyscall(unix.SYS_RSEQ, 0, 0, 0)
	return e == unix.EINVAL || e == unix.EFAULT || e == unix.EBUSY
}
