package engine

import (
	"encoding/binary"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/threads"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// tidOffsets are where thread control blocks keep the thread's number: glibc's
// struct pthread (nptl/descr.h) and musl's (src/internal/pthread_impl.h).
var tidOffsets = []int32{0x2d0, 0x30}

// findTID finds where detours can read their thread's number. Every stopped
// thread must have its own there; else detours ask the kernel.
func findTID(p *tracee.Process, stopped []*tracee.Thread, n *threads.Numbers) detour.TID {
	for _, off := range tidOffsets {
		fits := 0
		for _, t := range stopped {
			own, err := ownNumber(p, t, off, n)
			if err != nil {
				continue // gone
			}
			if !own {
				fits = -1
				break
			}
			fits++
		}
		if fits > 0 {
			return detour.TID{Seg: asm.FS, Off: off}
		}
	}
	return findGoTID(p, stopped, n)
}

// ownNumber reports whether a stopped thread has a control block that keeps its
// number at an offset. The error is that of a thread that is gone.
func ownNumber(p *tracee.Process, t *tracee.Thread, off int32, n *threads.Numbers) (bool, error) {
	regs, err := t.Regs()
	if err != nil {
		return false, err
	}
	var self [8]byte
	var number [4]byte
	if _, err := p.ReadMemory(self[:], symbols.Addr(regs.Fs_base)); err != nil || le64(self[:]) != regs.Fs_base {
		return false, nil
	}
	if _, err := p.ReadMemory(number[:], symbols.Addr(regs.Fs_base)+symbols.Addr(off)); err != nil {
		return false, nil
	}
	return binary.LittleEndian.Uint32(number[:]) == n.Inside(t.TID()), nil
}

// checkNumber looks whether a thread that is born has its number where detours read
// it. One of raw clone may have its parent's control block, or a copy, and its hits
// would be its parent's: from then on all detours of the process ask the kernel.
func (tg *Target) checkNumber(t *tracee.Thread) {
	if tg.Params == nil || tg.Area == nil || !tg.IsMain() || tg.dying || tg.Engine.Closed {
		return
	}
	at := &tg.Params.TID
	if at.Seg != asm.FS || len(at.Path) > 0 {
		return
	}
	own, err := ownNumber(tg.Proc, t, at.Off, tg.Feed.Numbers)
	if err != nil {
		return // gone
	}
	if own {
		tg.bornWithout(t)
		return
	}
	tg.bar("a thread has been born without a control block of its own")
	tg.Engine.Logf("process %d: thread %d has no number in its control block: detours ask the kernel", tg.Proc.PID(), t.TID())
	tg.Renewal.tries = renewTries // which is final
	tg.readNumbers(detour.TID{}, 0)
}

// bornWithout has the area of a new thread, which registers it later, say so.
func (tg *Target) bornWithout(t *tracee.Thread) {
	if tg.Params.Rseq == 0 {
		return
	}
	regs, err := t.Regs()
	if err != nil {
		return // gone
	}
	if !tg.hideArea(regs.Fs_base + uint64(int64(tg.Params.Rseq))) {
		tg.bar("the area of a new thread can't be written to")
	}
}

// readNumbers has detours read threads' numbers elsewhere, and use the areas that rseq
// tells of (detour.Params.Rseq): every jump is built again. Threads that are born
// meanwhile wait.
func (tg *Target) readNumbers(from detour.TID, rseq int32) {
	tg.Engine.Answers.off++
	defer func() { tg.Engine.Answers.off-- }()
	was, wasRseq := tg.Params.TID, tg.Params.Rseq
	tg.Params.TID, tg.Params.Rseq = from, rseq
	tg.SetSequences()
	err := tg.ShareRenewed(tg.Engine.Run)
	if err == nil {
		err = tg.renew()
	}
	if err != nil {
		tg.Params.TID, tg.Params.Rseq = was, wasRseq
		tg.SetSequences()
		tg.Engine.Logf("process %d: jumps stay as they were: %v", tg.Proc.PID(), err)
	}
}

// Where Go keeps a thread's number: in the m (runtime/runtime2.go, procid) of
// the g that is in the thread's local storage. procid moves from release to
// release, within goMSize bytes.
const (
	goTLS   = -8
	goM     = 48
	goMSize = 512
)

// findGoTID is findTID for programs of Go that don't use C's library. Threads
// that are no m of Go's have no number there, and detours ask the kernel.
func findGoTID(p *tracee.Process, stopped []*tracee.Thread, n *threads.Numbers) detour.TID {
	var fits [goMSize / 8]int
	asked := 0
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone
		}
		var word [8]byte
		m := make([]byte, goMSize)
		if _, err := p.ReadMemory(word[:], symbols.Addr(regs.Fs_base-8)); err != nil || le64(word[:]) == 0 {
			return detour.TID{}
		}
		if _, err := p.ReadMemory(word[:], symbols.Addr(le64(word[:])+goM)); err != nil {
			return detour.TID{}
		}
		if _, err := p.ReadMemory(m, symbols.Addr(le64(word[:]))); err != nil {
			return detour.TID{}
		}
		asked++
		for i := range fits {
			if le64(m[8*i:]) == uint64(n.Inside(t.TID())) {
				fits[i]++
			}
		}
	}
	for i, n := range fits {
		if n > 0 && n == asked {
			return detour.TID{Seg: asm.FS, Off: goTLS, Path: []int32{goM, int32(8 * i)}}
		}
	}
	return detour.TID{}
}
