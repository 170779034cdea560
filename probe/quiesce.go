package probe

import (
	"context"

	"kprobe/probe/area"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a run ends with counters that add up
//
// A hit is what its record says, or the counter of hits without one. So the end
// has an order:
//
//  1. every probe is switched off: no thread begins a hit any more;
//  2. the threads that are in a detour are let run until they have left it,
//     with their events handled, for one may be waiting for the tracer;
//  3. the rings are emptied: what is in them is all that will ever be. A record
//     that was begun by a thread that was killed is lost.

// quiesce waits until no thread of the feed's target is in a detour, or until the
// target is gone.
func (s *engine) quiesce(t *feed) {
	for length := range area.Moments() {
		inside, err := false, error(nil)
		err = s.tracer.Do(func() error {
			tg := s.targets[t.pid]
			if tg == nil || tg.feed != t || len(tg.patches.stages) == 0 {
				return nil
			}
			return tg.withStopped(context.Background(), func(stopped []*tracee.Thread) error {
				for _, th := range stopped {
					regs, err := th.Regs()
					inside = inside || err == nil && (tg.patches.recording(symbols.Addr(regs.Rip)) || tg.inShared(symbols.Addr(regs.Rip)))
				}
				return nil
			})
		})
		if tracee.IgnoreLate(err) != nil || !inside { // late threads are out of every detour
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), length)
		_ = s.tracer.Run(ctx, s.owner.handler()) // ends with ctx
		cancel()
	}
}

// recording reports whether a thread at pc may be in the middle of a hit: in a
// detour, but not in displaced instructions.
func (ps *patches) recording(pc symbols.Addr) bool {
	st := ps.stageAt(pc)
	if st == nil || st.detour == nil {
		return false
	}
	return pc < st.copyAt || pc >= st.copyAt+symbols.Addr(st.copied)
}
