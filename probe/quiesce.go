package probe

import (
	"context"
	"time"

	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a run ends with counters that add up
//
// A thread counts its hit first and records it then. So the end has an order:
//
//  1. every probe is switched off: no thread begins a hit any more;
//  2. the threads that are in a detour are let run until they have left it,
//     with their events handled, for one may be waiting for the tracer;
//  3. the rings are emptied: what is in them is all that will ever be;
//  4. of a target that is gone, and of a thread that could not be made to
//     leave, a hit may have been counted that nobody will record: it is lost.

const (
	quiescePause = time.Millisecond
	quiesceTries = 500
)

// quiesce waits until no thread of the tap's target is in a detour. It reports
// whether that is certain; the target may be gone.
func (s *Session) quiesce(t *tap) bool {
	for range quiesceTries {
		inside, err := false, error(nil)
		err = s.tracer.Do(func() error {
			tg := s.targets[t.pid]
			if tg == nil || tg.tap != t || len(tg.patches.stages) == 0 {
				return nil
			}
			return tg.proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
				for _, th := range stopped {
					regs, err := th.Regs()
					inside = inside || err == nil && tg.patches.recording(symbols.Addr(regs.Rip))
				}
				return nil
			})
		})
		if ignoreLate(err) != nil { // late threads are out of every detour
			return false
		}
		if !inside {
			return !t.over.Load()
		}
		ctx, cancel := context.WithTimeout(context.Background(), quiescePause)
		_ = s.tracer.Run(ctx, (*handler)(s)) // ends with ctx
		cancel()
	}
	return false
}

// recording reports whether a thread at pc may be in the middle of a hit: in a
// detour, but not in displaced instructions.
func (ps *patches) recording(pc symbols.Addr) bool {
	st := ps.stageAt(pc)
	if st == nil || st.detour == nil {
		return false
	}
	return pc < st.copyAt || pc >= st.copyAt+symbols.Addr(len(st.moved.Code))
}

// settle counts hits as lost that were counted and will never be recorded. The
// rings are empty.
func (t *tap) settle() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ids {
		if p == nil || !t.s.records(p.user) {
			continue
		}
		if n := t.counters.Probe(p.id).Pending(); n > 0 {
			t.producer.Count(0, p.id, ring.CounterLost, n)
		}
	}
}
