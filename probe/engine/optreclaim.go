package engine

import (
	"context"
	"errors"
	"time"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How abandoned instances are reclaimed
//
// A call that is left by longjmp or by its thread's end keeps its instance. A later call with the
// same slot takes the instance over in its detour if no other is free (probe/detour). The tracer
// reclaims the rest when nmissed grows: an instance is abandoned if its slot no longer holds its
// return trampoline. It is freed if two looks in a row find it abandoned, each with all threads
// stopped and none in the probe's code. One look isn't enough: a thread may be just taking the
// instance without having written the slot, and it has done so by the second look.

// reclaimEvery is how often nmissed is read. If it doesn't grow, the interval doubles up to
// reclaimRest. If it does, the looks take at most one part in reclaimShare of the time: while all
// instances of a deep recursion are in use, nmissed grows all the time and no look finds anything.
const (
	reclaimEvery = 10 * time.Millisecond
	reclaimRest  = 160 * time.Millisecond
	reclaimShare = 20
)

// reclaimPause is the pause before nmissed is read again, after looks that took so long.
func reclaimPause(took time.Duration) time.Duration {
	return max(reclaimEvery, (reclaimShare-1)*took)
}

// watchMissed starts a goroutine that reclaims abandoned instances when nmissed grows. It ends with
// the target's feed.
func (tg *Target) watchMissed() {
	if tg.watching {
		return
	}
	tg.watching = true
	t := tg.Feed
	go func() {
		pause, last := reclaimEvery, uint64(0)
		for {
			time.Sleep(pause)
			if t.over.Load() {
				return
			}
			now := t.missedReturns()
			if now == last {
				pause = min(pause*2, reclaimRest)
				continue
			}
			begin := time.Now()
			err := tg.Engine.Tracer.Do(func() error {
				if err := tg.comeBack(context.Background()); err != nil {
					return err
				}
				return tg.ReclaimReturns()
			})
			pause = reclaimPause(time.Since(begin))
			switch {
			case errors.Is(err, tracee.ErrClosed):
				return
			case err == nil:
				last = now
			}
		}
	}()
}

// missedReturns is the sum of nmissed of the probes whose returns jumps see.
func (t *Feed) missedReturns() (n uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.Ids {
		if p != nil && p.Way() != nil {
			n += t.counters.Probe(p.Id).Missed
		}
	}
	return n
}

var errLate = errors.New("a thread could not be stopped")

// ReclaimReturns looks twice for abandoned instances, and frees those that both looks find.
func (tg *Target) ReclaimReturns() error {
	if tg.Area == nil || tg.dying {
		return nil
	}
	// A common table is large: it is examined once a second at most.
	common := time.Since(tg.commonLooked) >= time.Second
	if common {
		defer func() { tg.commonLooked = time.Now() }()
	}
	look := func() error {
		return tg.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
			if !tg.allStopped(stopped) {
				return errLate
			}
			busy := map[uint64]bool{} // ways that a thread is in the code of, by the address of their calls
			var sps []uint64
			for _, t := range stopped {
				regs, err := t.Regs()
				if err != nil {
					return errLate
				}
				sps = append(sps, regs.Rsp)
				if st, _ := tg.StageOf(regs); !st.None() {
					if st.Way() != nil {
						busy[st.Way().At()] = true
					}
				} else if tg.InShared(symbols.Addr(regs.Rip)) {
					return errLate // the calling stage can't be found out
				}
			}
			for _, st := range tg.Patches.outlive {
				if !busy[st.Way().At()] {
					if err := tg.reclaimWay(runningWay(st.Way()), sps); err != nil {
						return err
					}
				}
			}
			for _, l := range tg.ExitProbes {
				if !busy[l.Calls().Addr] && (common || !l.Calls().Common) {
					if err := tg.reclaimWay(exitReturns{l}, sps); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := look(); err != nil {
		return err
	}
	return look()
}

// reclaimWay frees instances that are abandoned and that the look before found abandoned, too. The
// other abandoned ones become suspects for the next look.
func (tg *Target) reclaimWay(w returnWay, sps []uint64) error {
	pool, at := w.Memory(), w.At()
	mem := make([]byte, pool.Size())
	if _, err := tg.Proc.ReadMemory(mem, symbols.Addr(at)); err != nil {
		return err
	}
	found := map[int]detour.Instance{}
	freed := false
	for _, in := range pool.Used(mem) {
		if !w.abandoned(tg, in, sps) {
			continue
		}
		if was, ok := tg.suspects[at][in.Number]; ok && was == in {
			pool.Free(mem, in.Number)
			freed = true
			continue
		}
		found[in.Number] = in
	}
	tg.suspects[at] = found
	if !freed {
		return nil
	}
	return tg.Proc.WriteMemory(mem, symbols.Addr(at))
}
