package engine

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"kprobe/probe/planner"
	"kprobe/probe/tracee"
)

// How removed code is freed
//
// When a jump or a breakpoint is removed, threads may be in the code that it led to, records of
// its probes may be in the rings, and calls may still have to return by its return trampolines.
// So all that one change has removed goes through these states together:
//
//	retired   nothing leads to the code any more, and the probes are switched off
//	quiet     a stop of all threads found no thread in the code, and none at an int3 or a guard
//	          whose trap is not answered yet: all records of the probes are in the rings, and
//	          the fallback handler's table drops the entries
//	delivered the reader has passed on all records up to that moment
//	vacated   all instances are free: no call returns by the return trampolines any more
//
// Once both delivered and vacated, the probes release their numbers and the code its memory. A probe
// keeps its number until all code that it was ever served by has come so far, also code that an
// earlier change has removed: a call that returns by it would be counted for whoever has the number
// then. Waiting for this has no time limit and costs nothing.
//
// A change that fails may leave code behind, too: new jumps that were written and taken out again,
// and outgoing jumps that could not be put back. The new ones are retired at once, the outgoing ones
// by the next change that succeeds (lostCode), as their probes are still there.

// retired is what one change has removed.
type retired struct {
	patches []*Patch  // jumps
	sites   []*Site   // breakpoints
	probes  []*Placed // removed probes, whose numbers are to be released
	quiet   bool
	vacated bool
	at      uint64 // time stamp counter when it was found quiet
}

// retirement is all that was removed from an address space and may still be in use.
type retirement struct {
	list []*retired
	// lostCode are jumps that a failed change has taken out and could not put back. The next change
	// that succeeds retires them.
	lostCode []*Patch
	// stuck are sites that serve nothing, but whose int3 could not be removed from the text. The
	// next change tries again, and retires them then.
	stuck []*Site
}

// add notes what a change has removed. It ignores an empty r.
func (x *retirement) add(r *retired) {
	if len(r.patches)+len(r.sites)+len(r.probes) > 0 {
		x.list = append(x.list, r)
	}
}

// Len is the number of changes whose removed code or probes may still be in use.
func (x *retirement) Len() int { return len(x.list) }

// vacated reports whether all of it is vacated.
func (x *retirement) vacated() bool {
	return !slices.ContainsFunc(x.list, func(r *retired) bool { return !r.vacated })
}

// takeEmpty removes from the list what is delivered and vacated, and returns it. given is the time
// stamp counter up to which the reader has passed on all records. waiting is the number of changes
// that are not delivered.
func (x *retirement) takeEmpty(given func() uint64) (empty []*retired, waiting int) {
	removed := map[*planner.Probe]bool{}
	for _, r := range x.list {
		for _, p := range r.probes {
			removed[&p.Probe] = true
		}
	}
	var passed uint64
	if len(removed) > 0 {
		passed = given()
	}
	var kept []*retired
	used := map[*planner.Probe]bool{} // by code that is kept
	for _, r := range x.list {
		if !r.quiet || len(r.probes) > 0 && passed <= r.at {
			waiting++
		}
		// Records of removed probes may be by this code, too.
		if recorded := len(r.probes) > 0 || r.serves(removed); r.vacated && (!recorded || passed > r.at) {
			empty = append(empty, r)
			continue
		}
		kept = append(kept, r)
		r.served(used)
	}
	if len(kept) > 0 {
		empty = slices.DeleteFunc(empty, func(r *retired) bool {
			held := slices.ContainsFunc(r.probes, func(p *Placed) bool { return used[&p.Probe] })
			if held {
				kept = append(kept, r)
			}
			return held
		})
	}
	x.list = kept
	return empty, waiting
}

// wants yields the requests that the retired jumps have served.
func (r *retired) wants() iter.Seq[planner.Request] {
	return func(yield func(planner.Request) bool) {
		for _, p := range r.patches {
			for q := p; q != nil; q = q.island {
				for _, w := range q.Wants {
					if !yield(w) {
						return
					}
				}
			}
		}
	}
}

// served adds the probes that the retired jumps have served to a set.
func (r *retired) served(set map[*planner.Probe]bool) {
	for w := range r.wants() {
		set[w.P] = true
	}
}

// serves reports whether the retired jumps have served a probe of a set.
func (r *retired) serves(set map[*planner.Probe]bool) bool {
	if len(set) > 0 {
		for w := range r.wants() {
			if set[w.P] {
				return true
			}
		}
	}
	return false
}

// takeBack removes those of the probes that are in the list, so that they keep their numbers, and
// returns them.
func (x *retirement) takeBack(probes map[*Placed]bool) (list []*Placed) {
	for _, r := range x.list {
		r.probes = slices.DeleteFunc(r.probes, func(p *Placed) bool {
			if probes[p] {
				list = append(list, p)
			}
			return probes[p]
		})
	}
	return list
}

// takeStuck empties the list of stuck sites and returns it, for another try.
func (x *retirement) takeStuck() []*Site {
	list := x.stuck
	x.stuck = nil
	return list
}

// retire notes what a committed change has removed.
func (tg *Target) retire(x *exchanged) {
	led := map[*Patch]bool{} // patches whose detours breakpoints lead into
	for _, w := range x.Traps {
		if w.Kind == planner.Redirect {
			led[tg.Patches.StageAt(w.To()).patch] = true
		}
	}
	r := &retired{sites: x.gone, patches: tg.Retired.lostCode}
	tg.Retired.lostCode = nil
	for _, p := range x.out.patches {
		if !led[p] {
			r.patches = append(r.patches, p)
		}
	}
	// In reverse order of definition: Event.part searches its probes from the end.
	for _, p := range slices.SortedFunc(maps.Keys(x.drop), func(a, b *Placed) int { return cmp.Compare(b.seq, a.seq) }) {
		for w := range p.wants {
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
		tg.disarm(p)
		r.probes = append(r.probes, p)
	}
	tg.forgetRedirects(r, x.drop)
	tg.forgetTrampolines()
	tg.Retired.add(r)
}

// forgetRedirects removes the breakpoints that lead into detours of exits, if all probes of the
// exit are removed. If such a detour also serves a probe that stays, the detour stays, and the
// removed probes keep their numbers until the detour is removed.
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
	led := map[*Patch]bool{} // whether a breakpoint still leads into the patch's detour
	for _, st := range tg.Sites {
		p := tg.Patches.StageAt(st.Redirect).patch
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
				r.probes = append(r.probes, p) // an earlier change kept its number
			}
		}
	}
	for p, is := range led {
		if !is && !p.Armed {
			r.patches = append(r.patches, p)
		}
	}
}

// forgetTrampolines removes breakpoints that follow calls: those where functions are left, if all
// their probes are removed, and those at return addresses, if no return probe is left.
func (tg *Target) forgetTrampolines() {
	tg.forgetWays(func(p *Placed) bool { _, is := tg.Placed[p]; return !is })
	if tg.returning > 0 {
		return
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

// Reap advances everything retired as far as possible now, and frees what is delivered and
// vacated. waiting is the number of changes that are not delivered yet.
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
			tg.Feed.free(p, true)
		}
	}
	tg.giveBack(ctx, empty)
	return waiting
}
