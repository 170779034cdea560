package engine

import (
	"context"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// vacate stops all threads and finds out which retired code no thread is in. The error is errLate
// if a thread could not be stopped or its place can't be read.
func (tg *Target) vacate(ctx context.Context) error {
	if tg.Retired.vacated() {
		return nil
	}
	return tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		if !tg.allStopped(stopped) {
			return errLate
		}
		in := map[any]bool{}
		for _, t := range stopped {
			regs, err := t.Regs()
			if err != nil {
				return errLate
			}
			pc := symbols.Addr(regs.Rip)
			if st, _ := tg.StageOf(regs); !st.None() {
				in[st.patch] = true
			} else if tg.InShared(pc) {
				return errLate // the shared code's link to the caller can't be read
			}
			if st := tg.siteOfCopy(pc); st != nil {
				in[st] = true
			}
			if t.AtTrap() {
				pc--
			}
			in[pc] = true
		}
		for _, r := range tg.Retired.list {
			if err := tg.vacateOne(r, in); err != nil {
				return err
			}
		}
		return nil
	})
}

// vacateOne advances r to quiet and vacated. in holds the patches and sites that threads are in,
// and the threads' addresses.
func (tg *Target) vacateOne(r *retired, in map[any]bool) error {
	busy := false
	for _, p := range r.patches {
		for q := p; q != nil; q = q.island {
			busy = busy || in[q] || q.Armed
			for g := range q.Plan.Guards() {
				busy = busy || in[symbols.Addr(g.At)]
			}
		}
	}
	for _, st := range r.sites {
		busy = busy || in[st] || in[st.Addr] || st.Armed
	}
	if busy {
		return nil
	}
	if !r.quiet {
		if err := tg.forgetRows(r); err != nil {
			return err
		}
		r.quiet, r.at = true, tg.Engine.counter.TSC()
		tg.forgetKeys(r)
	}
	used, err := tg.instancesUsed(r)
	if err != nil {
		return err
	}
	r.vacated = used == 0
	return nil
}

// forgetKeys removes int3s and guards from the fallback handler's table. No thread has an
// unanswered trap at one of them any more.
func (tg *Target) forgetKeys(r *retired) {
	for _, p := range r.patches {
		for q := p; q != nil; q = q.island {
			for g := range q.Plan.Guards() {
				tg.Area.Table.Forget(GuardKey(g))
			}
		}
	}
	for _, st := range r.sites {
		tg.Area.Table.Forget(uint64(st.Addr))
	}
}

// instancesUsed is the number of active calls of removed return probes. It frees abandoned
// instances that the look before found abandoned, too.
func (tg *Target) instancesUsed(r *retired) (n int, err error) {
	for _, p := range r.patches {
		for st := range p.allStages() {
			if st.Way() == nil || !st.Way().Outlives() {
				continue
			}
			if err := tg.reclaimWay(runningWay(st.Way()), nil); err != nil {
				return 0, err
			}
			pool, at := st.Way().Memory(), st.Way().At()
			mem := make([]byte, pool.Size())
			if _, err := tg.Proc.ReadMemory(mem, symbols.Addr(at)); err != nil {
				return 0, err
			}
			n += len(pool.Used(mem))
		}
	}
	for _, p := range r.probes {
		if p.pool != nil {
			n += p.pool.InUse()
		}
	}
	return n, nil
}
