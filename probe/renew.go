package probe

import (
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
// jump is replaced by one to a better detour, in one stop.
const (
	renewFirst = 50 * time.Millisecond
	renewTries = 9 // over 25 s
)

// renewal is when a target's threads' numbers are looked for next.
type renewal struct {
	at    time.Time
	tries int
}

// renewable reports whether the target's jumps are to be built again once its
// threads' numbers can be read.
func (tg *target) renewable() bool {
	return tg.opt != nil && tg.opt.params.TID.Seg == asm.DS && len(tg.patches.list) > 0 && !tg.s.opts.CountOnly &&
		!tg.borrowed && !tg.dying && !tg.s.closed && tg.renewal.tries < renewTries
}

// renewAtTick builds the target's jumps again if its threads' numbers can be
// read by now.
func (tg *target) renewAtTick() {
	r, now := &tg.renewal, time.Now()
	if !tg.renewable() || now.Before(r.at) {
		return
	}
	r.at = now.Add(renewFirst << r.tries)
	r.tries++
	var tid detour.TID
	err := tg.proc.WithStopped(tg.s.run, func(stopped []*tracee.Thread) error {
		tid = findTID(tg.proc, stopped, tg.tap.numbers)
		return nil
	})
	if err != nil || tid.Seg == asm.DS {
		return // a thread that waits in the kernel is asked next time
	}
	tg.opt.params.TID = tid
	if err = tg.shareRenewed(tg.s.run); err == nil {
		err = tg.renew()
	}
	if err != nil {
		tg.s.logf("process %d: jumps stay as they were: %v", tg.proc.PID(), err)
	}
}

// renew builds every jump again. On an error all is as before.
func (tg *target) renew() error {
	f := &finder{tg: tg, out: &outgoing{stay: map[*placed]bool{}}, seen: map[*placed]bool{}}
	for _, p := range tg.patches.list {
		if p.armed {
			f.patch(p)
		}
	}
	for p := range f.seen {
		f.out.stay[p] = true
	}
	return tg.exchange(tg.s.run, f.out, nil, nil, nil)
}
