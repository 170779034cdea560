package probe

import (
	"strings"
	"time"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/tracee"
)

// Jumps that are built again
//
// Detours read their thread's number where the thread's library or runtime
// keeps it. In a program that kprobe has started nothing is there yet when its
// probes are armed, and a detour that must ask the kernel costs ten times as
// much. So it is looked for again, ever less often, and once it is there every
// jump is replaced by one to a better detour, in one stop; where seccomp rules may judge
// system calls, the breakpoints that stood for it become jumps. The same goes for
// the rseq areas of its threads.
const (
	renewFirst = 50 * time.Millisecond
	renewTries = 9 // over 25 s
	renewSoon  = 5 // over 1.5 s: a process isn't let go of before
)

// A program may also set rules for its system calls (seccomp) after its probes were
// armed, in one thread or all: its detours make none from then on. What can't do
// without one becomes a breakpoint. Rules are looked for at each change, where the
// process's status shows them at the next tick, and of its other threads each second.
// What a thread calls in a detour between its setting of a rule and that look the
// rule judges.

// renewal is when a target's threads' numbers are looked for next.
type renewal struct {
	at    time.Time
	tries int
	// filtered: no jump makes system calls any more.
	filtered bool
}

// renewable reports whether the target's jumps are to be built again once its
// threads' numbers can be read.
func (tg *target) renewable() bool {
	return tg.params != nil && tg.params.TID.Seg == asm.DS && (len(tg.patches.list) > 0 || len(tg.lackNumber()) > 0) &&
		tg.isMain() && !tg.dying && !tg.s.closed && tg.renewal.tries < renewTries
}

// lackNumber lists the probes that are breakpoints because their threads' numbers
// can't be read, and system calls may be judged.
func (tg *target) lackNumber() (out []*placed) {
	for p := range tg.placed {
		if !p.removed && strings.Contains(p.why, detour.NeedsNumber) {
			out = append(out, p)
		}
	}
	return out
}

// renewAtTick builds the target's jumps again if its threads' numbers can be
// read by now.
func (tg *target) renewAtTick() {
	if tg.unattended.letGo || tg.unattended.open {
		return
	}
	tg.filtersAtTick()
	r, now := &tg.renewal, time.Now()
	if !tg.renewable() || now.Before(r.at) {
		return
	}
	r.at = now.Add(renewFirst << r.tries)
	r.tries++
	var tid detour.TID
	var rseq int32
	err := tg.proc.WithStopped(tg.s.run, func(stopped []*tracee.Thread) error {
		tid = findTID(tg.proc, stopped, tg.feed.numbers)
		rseq, _ = tg.findSequences(stopped, tid)
		return nil
	})
	if err != nil || tid.Seg == asm.DS {
		return // a thread that waits in the kernel is asked next time
	}
	if tg.s.opts.CountOnly && rseq == 0 {
		return // nobody would gain by it
	}
	tg.readNumbers(tid, rseq)
}

// filtersAtTick builds the target's jumps again, without system calls, if rules
// judge these by now.
func (tg *target) filtersAtTick() {
	if tg.params == nil || tg.renewal.filtered || !tg.isMain() || tg.dying || tg.s.closed || !tracee.Filtered(tg.proc.PID()) {
		return
	}
	tg.params.NoSyscall, tg.renewal.filtered = true, true
	if tg.s.letsGo {
		tg.params.Careful = false // a process of whose memory hits read stays traced
	}
	tg.params.NoReads = tg.params.Careful // it is left soon: the next one looks at the rules
	if len(tg.patches.list) == 0 {
		return
	}
	if err := tg.renew(); err != nil {
		tg.renewal.filtered = false // again at the next tick
		tg.s.logf("process %d has set seccomp rules, and jumps stay as they were: %v", tg.proc.PID(), err)
		return
	}
	tg.s.logf("process %d has set seccomp rules: detours make no system calls any more", tg.proc.PID())
}

// renew builds every jump again, and those that could not be yet. On an error all is as before.
func (tg *target) renew() error {
	f := tg.newFinder()
	for _, p := range tg.patches.list {
		if p.armed {
			f.patch(p)
		}
	}
	if tg.params.TID.Seg != asm.DS {
		for _, p := range tg.lackNumber() {
			f.probe(p)
		}
	}
	for p := range f.seen {
		f.out.stay[p] = true
	}
	return tg.exchange(tg.s.run, &changeset{out: f.out})
}
