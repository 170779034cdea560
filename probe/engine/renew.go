package engine

import (
	"strings"
	"time"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/tracee"
)

// Jumps that are built again
//
// Detours read their thread's number where the C library or the runtime keeps it. In a program
// that kprobe has started, this place is still empty when the probes are armed. A detour that asks
// the kernel instead costs ten times as much. So kprobe looks again, at doubling intervals. Once the
// numbers are there, every jump is replaced by one to a better detour, in one stop. If seccomp
// rules may judge system calls, such probes are breakpoints until then, and become jumps. The same
// is done for the rseq areas of the threads.
const (
	renewFirst = 50 * time.Millisecond // before the second attempt
	renewTries = 9                     // attempts at most, over 25 s
	renewSoon  = 5                     // attempts before a process may be let go of, over 1.5 s
)

// A program may set seccomp rules after its probes were armed, in one thread or in all. From then
// on its detours make no system calls, and a probe that needs one becomes a breakpoint. kprobe
// looks for rules at each change, at each tick in the status of the process, and each second in
// that of its other threads. Until then the rules judge system calls that the thread makes in a
// detour.

// renewal says when and how often a target's jumps are built again.
type renewal struct {
	at    time.Time // when to look for thread numbers next
	tries int       // how often that was done
	// Filtered says that detours were built again without system calls.
	Filtered bool
}

// renewable reports whether the target's jumps are to be built again once its threads' numbers can
// be read.
func (tg *Target) renewable() bool {
	return tg.Params != nil && tg.Params.TID.Seg == asm.DS && (len(tg.Patches.List) > 0 || len(tg.lackNumber()) > 0) &&
		tg.IsMain() && !tg.dying && !tg.Engine.Closed && tg.Renewal.tries < renewTries
}

// lackNumber lists the probes that are breakpoints because thread numbers can't be read and seccomp
// rules may judge system calls.
func (tg *Target) lackNumber() (out []*Placed) {
	for p := range tg.Placed {
		if !p.removed && strings.Contains(p.Why, detour.NeedsNumber) {
			out = append(out, p)
		}
	}
	return out
}

// renewAtTick builds the target's jumps again if its thread numbers can be read now, or if it has
// set seccomp rules.
func (tg *Target) renewAtTick() {
	if tg.unattended.letGo || tg.unattended.open {
		return
	}
	tg.filtersAtTick()
	r, now := &tg.Renewal, time.Now()
	if !tg.renewable() || now.Before(r.at) {
		return
	}
	r.at = now.Add(renewFirst << r.tries)
	r.tries++
	var tid detour.TID
	var rseq int32
	err := tg.Proc.WithStopped(tg.Engine.Run, func(stopped []*tracee.Thread) error {
		tid = findTID(tg.Proc, stopped, tg.Feed.Numbers)
		rseq, _ = tg.findSequences(stopped, tid)
		return nil
	})
	if err != nil || tid.Seg == asm.DS {
		return // the number may be readable at the next attempt
	}
	if tg.Engine.Opts.CountOnly && rseq == 0 {
		return // counting detours read no number, so they would stay the same
	}
	tg.readNumbers(tid, rseq)
}

// filtersAtTick builds the target's jumps again without system calls, if seccomp rules judge these
// now.
func (tg *Target) filtersAtTick() {
	if tg.Params == nil || tg.Renewal.Filtered || !tg.IsMain() || tg.dying || tg.Engine.Closed || !tracee.Filtered(tg.Proc.PID()) {
		return
	}
	tg.Params.NoSyscall, tg.Renewal.Filtered = true, true
	if tg.Engine.LetsGo {
		tg.Params.Careful = false // a process of whose memory hits read stays traced
	}
	// The rules are not examined: careful detours may not ask the kernel from now on. The process is
	// left soon, and the next session examines the rules.
	tg.Params.NoReads = tg.Params.Careful
	if len(tg.Patches.List) == 0 {
		return
	}
	if err := tg.renew(); err != nil {
		tg.Renewal.Filtered = false // again at the next tick
		tg.Engine.Logf("process %d has set seccomp rules, and jumps stay as they were: %v", tg.Proc.PID(), err)
		return
	}
	tg.Engine.Logf("process %d has set seccomp rules: detours make no system calls any more", tg.Proc.PID())
}

// renew builds every jump again, and jumps for the probes of lackNumber if numbers can be read now.
// On an error the target is as before.
func (tg *Target) renew() error {
	f := tg.newFinder()
	for _, p := range tg.Patches.List {
		if p.Armed {
			f.patch(p)
		}
	}
	if tg.Params.TID.Seg != asm.DS {
		for _, p := range tg.lackNumber() {
			f.probe(p)
		}
	}
	for p := range f.seen {
		f.out.stay[p] = true
	}
	return tg.exchange(tg.Engine.Run, &changeset{out: f.out})
}
