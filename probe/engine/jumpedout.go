package engine

import (
	"context"
	"sync"
	"time"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Records that a signal handler has jumped out of
//
// While a process is let go of, a signal handler may interrupt a detour and leave it by
// siglongjmp. The record that the detour has reserved then stays unfinished, and blocks the ring
// behind it. The reader asks about such a record after a second. Then the threads are stopped. A
// thread that is in no detour, and in no handler that will return to one, has abandoned all its
// older records.

// outsides says when threads were last found outside of every detour.
type outsides struct {
	mu      sync.Mutex
	looking bool                 // lookOutside is running
	at      map[uint32]time.Time // by the thread's number in records; 0: all threads
}

// outsideFor is how long such a finding is valid. It is less than the time for which a record is
// unfinished before the reader asks (ring.Options.GiveUp), so it is later than the record's
// beginning.
const outsideFor = 900 * time.Millisecond

// jumpedOut reports whether the thread tid (0: each thread) was outside of every detour within the last
// outsideFor. If that isn't known, it returns false and finds out in another goroutine; the caller
// asks again.
func (t *Feed) jumpedOut(tid uint32) bool {
	o := &t.outside
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.at[tid]) < outsideFor {
		return true
	}
	if !o.looking {
		o.looking = true
		go t.lookOutside()
	}
	return false
}

// lookOutside stops the target's threads and notes which are outside of every detour.
func (t *Feed) lookOutside() {
	found := map[uint32]time.Time{}
	_ = t.engine.Tracer.Do(func() error { // fails only once the session is closed
		tg := t.engine.Targets[t.Pid]
		if tg == nil || tg.Feed != t || tg.Area == nil || t.engine.Closed {
			return nil
		}
		ctx := context.WithoutCancel(t.engine.Run)
		if tg.unattended.letGo {
			if err := tg.seizeAgain(ctx); err != nil {
				t.engine.Logf("whether records are unfinished for good: %v", err)
				return nil
			}
			tg.postponeLetGo()
		}
		tg.takeForked(ctx)
		all := true
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			now := time.Now()
			for _, th := range stopped {
				regs, err := th.Regs()
				if err != nil {
					continue // gone
				}
				pc := symbols.Addr(regs.Rip)
				if !tg.Patches.StageAt(pc).None() || tg.InShared(pc) || tg.Area.Interrupted(th) {
					all = false
					continue
				}
				found[t.Numbers.Inside(th.TID())] = now
			}
			if all && tg.allStopped(stopped) {
				found[0] = now
			}
			return nil
		})
		return tracee.IgnoreLate(err)
	})
	t.outside.mu.Lock()
	defer t.outside.mu.Unlock()
	t.outside.at, t.outside.looking = found, false
}
