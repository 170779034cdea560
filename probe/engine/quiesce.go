package engine

import (
	"context"

	"kprobe/probe/area"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a run ends with counters that add up
//
// A hit is either a record or one increment of a counter. For the sums to be right, a run ends in
// this order:
//
//   1. Every probe is switched off: no thread begins a hit any more.
//   2. Threads in a detour run until they have left it. Their stops are answered meanwhile, because such a thread may be waiting for the tracer.
//   3. The rings are emptied: no more records can come. A record that a killed thread had begun counts as lost.

// Quiesce waits until no thread of the feed's target is in a detour, or until the
// target is gone.
func (s *Engine) Quiesce(t *Feed) {
	for length := range area.Moments() {
		inside, err := false, error(nil)
		err = s.Tracer.Do(func() error {
			tg := s.Targets[t.Pid]
			if tg == nil || tg.Feed != t || len(tg.Patches.Stages) == 0 {
				return nil
			}
			return tg.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
				for _, th := range stopped {
					regs, err := th.Regs()
					inside = inside || err == nil && (tg.Patches.Recording(symbols.Addr(regs.Rip)) || tg.InShared(symbols.Addr(regs.Rip)))
				}
				return nil
			})
		})
		if tracee.IgnoreLate(err) != nil || !inside { // late threads are out of every detour
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), length)
		_ = s.Tracer.Run(ctx, s.Owner.Handler()) // ends with ctx
		cancel()
	}
}

// Recording reports whether a thread at pc may be in the middle of a hit: in a
// detour, but not in displaced instructions.
func (ps *patches) Recording(pc symbols.Addr) bool {
	st := ps.StageAt(pc)
	if st.None() || !st.Probed() {
		return false
	}
	return !st.copies(pc)
}
