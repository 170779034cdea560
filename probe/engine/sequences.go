package engine

import (
	"encoding/binary"
	"fmt"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/loader"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Which threads take their hits in restartable sequences
//
// Detours count and reserve room without a lock if two things hold. The C library says that
// each of its threads has an rseq area at the same distance from its control block
// (__rseq_offset, glibc 2.35). And the kernel confirms that for every thread. A detour reads
// from the area whether its thread is registered: if not, it has no CPU, a negative number. Two
// kinds of task could be mistaken, and are noticed at their birth:
//
//   - A new thread of the C library registers its area some instructions after its first. Until
//     then the memory is zero, or contains what the last thread there has left. The area is
//     marked as having no CPU, as the library itself does for a thread that can't be
//     registered.
//   - A task that shares another's control block (vfork, clone by hand) would take that one's
//     area for its own. While such a task lives, no CPU has sequences (ring.SeqCPUs): all hits
//     go the locked way. This is safe beside a sequence in progress, because it writes other
//     words.

// noCPU is what an area says whose thread isn't registered (RSEQ_CPU_ID_UNINITIALIZED).
const noCPU = -1

// areaCPU is the offset of cpu_id in struct rseq.
const areaCPU = 4

// glibcTID is where glibc's control blocks have the thread's number.
const glibcTID = 0x2d0

// findSequences returns the value for detour.Params.Rseq: the distance of the threads' rseq areas
// from their control blocks. It is 0, with the reason, if hits must use locked instructions. tid
// says where the threads, which are stopped, have their numbers.
func (tg *Target) findSequences(stopped []*tracee.Thread, tid detour.TID) (off int32, why string) {
	if tg.barred != "" {
		return 0, tg.barred
	}
	off, why = loader.RseqOffset(tg.Space, tg.Proc)
	if why != "" {
		return 0, why
	}
	if tid.Seg != asm.FS || len(tid.Path) > 0 || tid.Off != glibcTID {
		return 0, "its threads' numbers are not where glibc has them"
	}
	registered := false
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone
		}
		want := regs.Fs_base + uint64(int64(off))
		switch area, signature := t.RseqArea(); {
		case area == want && signature == detour.RseqSignature:
			registered = true
		case area == 0 && tg.hideArea(want):
		case area == 0:
			return 0, fmt.Sprintf("the rseq area of thread %d can't be written to", t.TID())
		default:
			return 0, fmt.Sprintf("thread %d has registered an rseq area of its own", t.TID())
		}
	}
	if !registered {
		return 0, "no thread has registered its rseq area"
	}
	return off, ""
}

// hideArea marks the rseq area of an unregistered thread as having no CPU. It reports whether the
// area is marked.
func (tg *Target) hideArea(area uint64) bool {
	var b [4]byte
	at := symbols.Addr(area + areaCPU)
	if _, err := tg.Proc.ReadMemory(b[:], at); err != nil {
		return false
	}
	if int32(binary.LittleEndian.Uint32(b[:])) < 0 {
		return true
	}
	cpu := int32(noCPU)
	return tg.Proc.WriteMemory(binary.LittleEndian.AppendUint32(nil, uint32(cpu)), at) == nil
}

// SetSequences writes to the memory file whether hits are taken in sequences from now on.
func (tg *Target) SetSequences() {
	tg = tg.main
	if tg.Area == nil || tg.Params == nil || tg.births.used {
		return
	}
	l, n := tg.Area.File.Layout, 0
	if tg.Params.Rseq != 0 && tg.barred == "" && (!tg.Engine.Opts.Detach || tg.births.trusted) && len(tg.Proc.Sharers()) == 0 {
		n = l.CPUs
	}
	tg.Area.File.Store32(l.Flags.Off+ring.SeqCPUs, uint32(n))
}

// bar switches sequences off in the address space for good. why is the reason, for the log and the
// book.
func (tg *Target) bar(why string) {
	if tg.barred != "" {
		return
	}
	tg.barred = why
	if tg.Params == nil || tg.Params.Rseq != 0 {
		tg.Engine.Logf("process %d: %s: its hits take locked instructions from now on", tg.Proc.PID(), why)
	}
	tg.SetSequences()
}
