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
// Detours read their thread's number where the thread's library or runtime keeps it. In a
// program that kprobe has started nothing is there yet when its probes are armed, and a detour
// that must ask the kernel costs ten times as much. So kprobe looks again, less and less often.
// Once the number is there, every jump is replaced by one to a better detour, in one stop. If
// seccomp rules may judge system calls, the breakpoints that stood for jumps become jumps. The
// same is done for the rseq areas of its threads.
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
	Filtered bool
}

// renewable reports whether the target's jumps are to be built again once its
// threads' numbers can be read.
func (tg *Target) renewable() bool {
	return tg.Params != nil && tg.Params.TID.Seg == asm.DS && (len(tg.Patches.List) > 0 || len(tg.lackNumber()) > 0) &&
		tg.IsMain() && !tg.dying && !tg.Engine.Closed && tg.Renewal.tries < renewTries
}

// lackNumber lists the probes that are breakpoints because their threads' numbers
// can't be read, and system calls may be judged.
func (tg *Target) lackNumber() (out []*Placed) {
	for p := range tg.Placed {
		if !p.removed && strings.Contains(p.Why, detour.NeedsNumber) {
			out = append(out, p)
		}
	}
	return out
}

// renewAtTick builds the target's jumps again if its threads' numbers can be
// read by now.
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
		return // a thread that waits in the kernel is asked next time
	}
	if tg.Engine.Opts.CountOnly && rseq == 0 {
		return // nobody would gain by it
	}
	tg.readNumbers(tid, rseq)
}

// filtersAtTick builds the target's jumps again, without system calls, if rules
// judge these by now.
func (tg *Target) filtersAtTick() {
	if tg.Params == nil || tg.Renewal.Filtered || !tg.IsMain() || tg.dying || tg.Engine.Closed || !tracee.Filtered(tg.Proc.PID()) {
		return
	}
	tg.Params.NoSyscall, tg.Renewal.Filtered = true, true
	if tg.Engine.LetsGo {
		tg.Params.Careful = false // a process of whose memory hits read stays traced
	}
	tg.Params.NoReads = tg.Params.Careful // it is left soon: the next one looks at the rules
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

// renew builds every jump again, and those that could not be yet. On an error all is as before.
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
