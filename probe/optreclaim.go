package probe

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
// A call that is left by longjmp or by its thread's end keeps its instance.
// The thread itself takes it again when it comes to the same slot and finds
// no other free (probe/detour). For the rest the tracer looks when nmissed
// grows: an instance whose slot no longer holds its return trampoline is abandoned. It
// is given back if two looks in a row, each with all threads stopped and none
// in the probe's code, find it so: a thread that was just taking it, unseen,
// has moved on by then.

// reclaimEvery is how often nmissed is looked at, and reclaimRest how often
// when it has not grown for long.
const (
	reclaimEvery = 10 * time.Millisecond
	reclaimRest  = 160 * time.Millisecond
)

// watchMissed looks for abandoned instances while the target's feed lives.
func (tg *target) watchMissed() {
	if tg.watching {
		return
	}
	tg.watching = true
	t := tg.feed
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
			err := tg.s.tracer.Do(func() error { return tg.reclaimReturns() })
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
func (t *feed) missedReturns() (n uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ids {
		if p != nil && (p.followed != nil || p.byExits != nil) {
			n += t.counters.Probe(p.id).Missed
		}
	}
	return n
}

var errLate = errors.New("a thread could not be stopped")

// reclaimReturns looks twice for abandoned instances.
func (tg *target) reclaimReturns() error {
	if tg.area == nil || tg.dying {
		return nil
	}
	// A table in common is large: it isn't looked into more often than this.
	common := time.Since(tg.commonLooked) >= time.Second
	if common {
		defer func() { tg.commonLooked = time.Now() }()
	}
	look := func() error {
		return tg.withStopped(context.Background(), func(stopped []*tracee.Thread) error {
			if !tg.allStopped(stopped) {
				return errLate
			}
			busy, leaving := map[*followed]bool{}, map[uint64]bool{}
			var sps []uint64
			for _, t := range stopped {
				regs, err := t.Regs()
				if err != nil {
					return errLate
				}
				sps = append(sps, regs.Rsp)
				if st, _ := tg.stageOf(regs); st != nil {
					busy[st.returns] = true
					if st.exits != nil {
						leaving[st.exits.calls.Addr] = true
					}
				} else if tg.inShared(symbols.Addr(regs.Rip)) {
					return errLate // whose call it is can't be read
				}
			}
			for _, st := range tg.patches.stages {
				if st.returns != nil && !busy[st.returns] {
					if err := tg.reclaimPool(st.returns); err != nil {
						return err
					}
				}
			}
			for _, l := range tg.exitProbes {
				if !leaving[l.calls.Addr] && (common || !l.calls.Common) {
					if err := tg.reclaimCalls(l, sps); err != nil {
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

// reclaimPool gives instances back that the look before found abandoned, too.
func (tg *target) reclaimPool(f *followed) error {
	return tg.freeAbandoned(f.pool, symbols.Addr(f.pool.Addr), &f.suspects, func(in detour.Instance) bool { return tg.abandoned(f, in) })
}

// instances is the target's memory for calls that are under way: a detour.Pool or
// detour.Calls.
type instances interface {
	Size() int // bytes
	Used(mem []byte) []detour.Instance
	Free(mem []byte, number int)
}

// freeAbandoned frees the instances at an address that are abandoned and are among
// the suspects, with the same call. Those that were not become the suspects.
func (tg *target) freeAbandoned(pool instances, at symbols.Addr, suspects *map[int]detour.Instance, abandoned func(detour.Instance) bool) error {
	mem := make([]byte, pool.Size())
	if _, err := tg.proc.ReadMemory(mem, at); err != nil {
		return err
	}
	found := map[int]detour.Instance{}
	freed := false
	for _, in := range pool.Used(mem) {
		if !abandoned(in) {
			continue
		}
		if was, ok := (*suspects)[in.Number]; ok && was == in {
			pool.Free(mem, in.Number)
			freed = true
			continue
		}
		found[in.Number] = in
	}
	*suspects = found
	if !freed {
		return nil
	}
	return tg.proc.WriteMemory(mem, at)
}

// abandoned reports whether a call won't return by its return trampoline: whether it is
// not among those that its slot leads to, from return trampoline to return trampoline where
// functions jumped to each other.
func (tg *target) abandoned(f *followed, in detour.Instance) bool {
	var word [8]byte
	next := symbols.Addr(in.Slot)
	for range detour.MaxInstances {
		if _, err := tg.proc.ReadMemory(word[:], next); err != nil {
			return !errors.Is(err, symbols.ErrLatePage)
		}
		now, n := tg.held(symbols.Addr(le64(word[:])))
		if now == nil {
			return true
		}
		if now == f && n == in.Number {
			return false
		}
		next = symbols.Addr(now.pool.ReturnAt(n))
	}
	return false
}

// underWay reports whether a call may still come to an exit, as its slot says. sps
// are the stack pointers of all threads.
func (tg *target) underWay(l *exitProbe, in detour.Instance, sps []uint64) bool {
	slot := in.Slot
	if l.calls.Go {
		g, distance := detour.GoCall(slot)
		lo, hi, sp, err := detour.GoStack(tg.proc, g)
		if err != nil || distance > hi-lo {
			return false
		}
		for _, x := range sps {
			if x >= lo && x < hi {
				sp = x
			}
		}
		// What a panic has left lies below the stack pointer, or the goroutine
		// has ended, and its stack pointer is where it began.
		if slot = hi - distance; sp >= lo && sp <= hi && slot < sp {
			return false
		}
	} else if in.TID != 0 && tg.proc.Thread(tg.feed.numbers.Outside(in.TID)) == nil {
		return false
	} else if l.calls.Common {
		return true // threads free their own, near the calls that need their rows
	}
	var word [8]byte
	_, err := tg.proc.ReadMemory(word[:], symbols.Addr(slot))
	return errors.Is(err, symbols.ErrLatePage) || err == nil && le64(word[:]) == in.Return
}

// reclaimCalls gives places of calls back that the look before found abandoned,
// too: whose thread is gone, or whose slot the program has used anew.
func (tg *target) reclaimCalls(l *exitProbe, sps []uint64) error {
	return tg.freeAbandoned(l.calls, symbols.Addr(l.calls.Addr), &l.suspects, func(in detour.Instance) bool { return !tg.underWay(l, in, sps) })
}
