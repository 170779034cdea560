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

// findTID finds where detours can read their thread's number: where every stopped thread has its own.
// If there is no such place, the result makes detours ask the kernel.
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

// ownNumber reports whether a stopped thread has a control block with its own number at an offset. The
// error says that the thread is gone.
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

// checkNumber checks whether a new thread has its number where detours read it. A thread of raw clone
// may have its parent's control block, or a copy of it, and its hits would show the parent's number.
// Then all detours of the process ask the kernel from now on.
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
	tg.Renewal.tries = renewTries // numbers aren't looked for again
	tg.readNumbers(detour.TID{}, 0)
}

// bornWithout marks the rseq area of a new thread, which the thread registers later, as having no CPU.
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

// readNumbers builds every jump again, for detours that read threads' numbers as from says and use rseq
// areas as rseq says (detour.Params.Rseq). On an error the jumps stay. No stops are answered
// meanwhile, so new threads wait.
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

// Go keeps a thread's number in field procid of the thread's m (runtime/runtime2.go). Thread-local
// storage has the g at goTLS, and the g has its m at goM. The offset of procid differs between
// releases, and is less than goMSize.
const (
	goTLS   = -8
	goM     = 48
	goMSize = 512
)

// findGoTID is findTID for Go programs without the C library. If a thread is not one of Go's runtime,
// detours ask the kernel.
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
