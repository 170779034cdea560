package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// What is removed and may still be in use
//
// When a jump or a breakpoint is removed, threads may be in the code that it led to, records of
// its probes may be in the rings, and calls may still have to return by its return trampolines.
// So what was removed goes through these states:
//
//	retired   nothing leads to its code any more, its probes are switched off
//	quiet     a stop of all threads found none in its code, nor at an int3 or a guard of it whose
//	          trap waits to be answered: whatever it had to record is in the rings, and the
//	          fallback handler's table needs it no more
//	delivered the reader has passed on all records up to that moment
//	vacated   its instances are all free: no call returns by its return trampolines
//
// A probe that is delivered and vacated releases its number, and code that is vacated its
// memory. Both wait as long as it takes, and cost nothing.

// retired is what one change took out.
type retired struct {
	patches []*Patch
	sites   []*Site
	probes  []*Placed // removed; their numbers are to be given back
	quiet   bool
	vacated bool
	at      uint64 // time stamp counter at which it was found quiet
}

// retirement is what was taken out of an address space and may still be in use.
type retirement struct {
	list []*retired
	// stuck are sites without a use whose int3 could not be taken out: they stay in the text
	// until the next change tries again, and are retired then.
	stuck []*Site
}

// add notes what a change has taken out, if it has taken something out.
func (x *retirement) add(r *retired) {
	if len(r.patches)+len(r.sites)+len(r.probes) > 0 {
		x.list = append(x.list, r)
	}
}

// Len is how many changes have taken out what may still be in use.
func (x *retirement) Len() int { return len(x.list) }

// vacated reports whether nobody is in any of it.
func (x *retirement) vacated() bool {
	return !slices.ContainsFunc(x.list, func(r *retired) bool { return !r.vacated })
}

// takeEmpty gives what is delivered and vacated, which is not in the list any more. given
// tells up to which moment the reader has given all records; waiting is how much isn't
// delivered.
func (x *retirement) takeEmpty(given func() uint64) (empty []*retired, waiting int) {
	kept := x.list[:0]
	for _, r := range x.list {
		delivered := r.quiet && (len(r.probes) == 0 || given() > r.at)
		if !delivered {
			waiting++
		}
		if !r.vacated || !delivered {
			kept = append(kept, r)
			continue
		}
		empty = append(empty, r)
	}
	clear(x.list[len(kept):])
	x.list = kept
	return empty, waiting
}

// takeStuck gives the sites that are stuck, for another try.
func (x *retirement) takeStuck() []*Site {
	list := x.stuck
	x.stuck = nil
	return list
}

// retire takes note of what a change has taken out.
func (tg *Target) retire(x *exchanged) {
	led := map[*Patch]bool{} // whose detours breakpoints lead into
	for _, w := range x.Traps {
		if w.Kind == planner.Redirect {
			led[tg.Patches.owner[tg.Patches.StageAt(w.To)]] = true
		}
	}
	r := &retired{sites: x.gone}
	for _, p := range x.out.patches {
		if !led[p] {
			r.patches = append(r.patches, p)
		}
	}
	// The last first: they are found there where their events have them.
	for _, p := range slices.SortedFunc(maps.Keys(x.drop), func(a, b *Placed) int { return cmp.Compare(b.seq, a.seq) }) {
		for _, w := range p.wants {
			if st := tg.Sites[w.Site.Addr]; st != nil {
				st.probes, st.returns, st.exits = remove(st.probes, p), remove(st.returns, p), remove(st.exits, p)
			}
		}
		if p.pool != nil {
			for in := range p.pool.Active() {
				if in.Trampoline < 0 {
					tg.calls.Drop(in)
				}
			}
		}
		p.Ev.places.Add(-1)
		delete(tg.Placed, p)
		r.probes = append(r.probes, p)
	}
	tg.forgetRedirects(r, x.drop)
	tg.forgetTrampolines()
	tg.Retired.add(r)
}

// forgetRedirects takes the breakpoints out that lead into the detours of exits
// of probes that go. A detour that serves a probe that stays, too, stays, and so do
// the numbers of those that go.
func (tg *Target) forgetRedirects(r *retired, drop map[*Placed]bool) {
	if len(drop) == 0 {
		return
	}
	type redirect struct {
		st   *Site
		p    *Patch
		gone []*Placed
	}
	var all []redirect
	led := map[*Patch]bool{} // whether breakpoints will lead there
	for _, st := range tg.Sites {
		p := tg.Patches.owner[tg.Patches.StageAt(st.Redirect)]
		if st.Redirect == 0 || p == nil {
			continue
		}
		var gone []*Placed
		stays := false
		for _, w := range p.Wants {
			if w.Kind != planner.Exit || w.Site.Addr != st.Addr {
				continue
			}
			if _, is := tg.Placed[PlacedOf(w)]; is {
				stays = true
			} else {
				gone = append(gone, PlacedOf(w))
			}
		}
		led[p] = led[p] || stays || len(gone) == 0
		if all = append(all, redirect{st, p, gone}); stays || len(gone) == 0 {
			continue
		}
		st.Redirect = 0
		if st.idle() {
			tg.discard(st)
			r.sites = append(r.sites, st)
		}
	}
	for _, x := range all {
		for _, p := range x.gone {
			switch {
			case led[x.p]:
				r.probes = remove(r.probes, p)
			case !slices.Contains(r.probes, p):
				r.probes = append(r.probes, p) // kept when it was removed
			}
		}
	}
	for p, is := range led {
		if !is && !p.Armed {
			r.patches = append(r.patches, p)
		}
	}
}

// forgetTrampolines takes the breakpoints at return addresses out when no probe
// needs them any more.
func (tg *Target) forgetTrampolines() {
	tg.forgetWays(func(p *Placed) bool { _, is := tg.Placed[p]; return !is })
	for p := range tg.Placed {
		if p.pool != nil {
			return
		}
	}
	var idle []*Site
	for _, st := range tg.Sites {
		if st.lands || st.calls {
			st.lands, st.calls = false, false
			if st.idle() {
				tg.discard(st)
				idle = append(idle, st)
			}
		}
	}
	tg.Retired.add(&retired{sites: idle})
}

// Reap brings what was taken out as far as it can be brought now. waiting is
// how much of it isn't delivered yet.
func (tg *Target) Reap(ctx context.Context) (waiting int) {
	if tg.Retired.Len() == 0 || tg.Area == nil || tg.dying || tg.unattended.letGo {
		return 0
	}
	err := tg.vacate(ctx)
	if tracee.IgnoreLate(err) != nil && !errors.Is(err, errLate) {
		tg.Engine.Logf("what was taken out keeps its memory: %v", err)
	}
	empty, waiting := tg.Retired.takeEmpty(func() uint64 { return tg.Feed.Given() })
	for _, r := range empty {
		for _, p := range r.probes {
			tg.Feed.free(p)
		}
	}
	tg.giveBack(ctx, empty)
	return waiting
}

// vacate looks, with all threads stopped, what of the retired nobody is in.
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
			if st, _ := tg.StageOf(regs); st != nil {
				in[tg.Patches.owner[st]] = true
			} else if tg.InShared(pc) {
				return errLate // its link can't be read
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

func (tg *Target) vacateOne(r *retired, in map[any]bool) error {
	busy := false
	for _, p := range r.patches {
		for q := p; q != nil; q = q.island {
			busy = busy || in[q] || q.Armed
			for _, g := range q.Plan.Guards {
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

// forgetKeys gives back what the fallback handler's table still has of int3s and guards that
// were taken out: no thread has trapped there that isn't led on yet.
func (tg *Target) forgetKeys(r *retired) {
	for _, p := range r.patches {
		for q := p; q != nil; q = q.island {
			for _, g := range q.Plan.Guards {
				tg.Area.Table.Forget(GuardKey(g))
			}
		}
	}
	for _, st := range r.sites {
		tg.Area.Table.Forget(uint64(st.Addr))
	}
}

// instancesUsed is how many calls are under way in return probes that were
// taken out. Abandoned ones come free when they were found so twice.
func (tg *Target) instancesUsed(r *retired) (n int, err error) {
	for _, p := range r.patches {
		for st := range p.allStages() {
			if st.Way == nil || !st.Way.Outlives() {
				continue
			}
			if err := tg.reclaimWay(runningWay(st.Way), nil); err != nil {
				return 0, err
			}
			pool, at := st.Way.Memory(), st.Way.At()
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
