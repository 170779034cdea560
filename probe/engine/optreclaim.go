package engine

import (
	"context"
	"errors"
	"time"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How abandoned instances come back
//
// A call that is left by longjmp or by its thread's end keeps its instance. The thread itself
// takes it over when it comes to the same slot and finds no other free (probe/detour). For the
// rest the tracer looks when nmissed grows: an instance whose slot no longer holds its return
// trampoline is abandoned. It is freed if two looks in a row, each with all threads stopped and
// none in the probe's code, find it so: a thread that was just taking it, unseen, has moved on
// by then.

// reclaimEvery is how often nmissed is looked at, and reclaimRest how often
// when it has not grown for long.
const (
	reclaimEvery = 10 * time.Millisecond
	reclaimRest  = 160 * time.Millisecond
)

// watchMissed looks for abandoned instances while the target's feed lives.
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
			pause = reclaimEvery
			err := tg.Engine.Tracer.Do(func() error {
				if err := tg.comeBack(context.Background()); err != nil {
					return err
				}
				return tg.ReclaimReturns()
			})
			switch {
			case errors.Is(err, tracee.ErrClosed):
				return
			case err == nil:
				last = now
			}
		}
	}()
}

// missedReturns adds up nmissed of the probes that have return trampolines.
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

// ReclaimReturns looks twice for abandoned instances.
func (tg *Target) ReclaimReturns() error {
	if tg.Area == nil || tg.dying {
		return nil
	}
	// A table in common is large: it isn't looked into more often than this.
	common := time.Since(tg.commonLooked) >= time.Second
	if common {
		defer func() { tg.commonLooked = time.Now() }()
	}
	look := func() error {
		return tg.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
			if !tg.allStopped(stopped) {
				return errLate
			}
			busy := map[uint64]bool{} // by where calls are noted
			var sps []uint64
			for _, t := range stopped {
				regs, err := t.Regs()
				if err != nil {
					return errLate
				}
				sps = append(sps, regs.Rsp)
				if st, _ := tg.StageOf(regs); st != nil {
					if st.Way != nil {
						busy[st.Way.At()] = true
					}
				} else if tg.InShared(symbols.Addr(regs.Rip)) {
					return errLate // whose call it is can't be read
				}
			}
			for _, st := range tg.Patches.Stages {
				if st.Way != nil && st.Way.Outlives() && !busy[st.Way.At()] {
					if err := tg.reclaimWay(runningWay(st.Way), sps); err != nil {
						return err
					}
				}
			}
			for _, l := range tg.ExitProbes {
				if !busy[l.Calls.Addr] && (common || !l.Calls.Common) {
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

// reclaimWay gives the places of calls back that the look before found abandoned, too.
// Those that were not become the suspects.
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
