package probe

import (
	"fmt"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// What is given up together
//
// A return probe of exits takes all of its jumps or none, and what stands at the same
// entry goes with it.

// giveUp makes breakpoints of what the patch was to serve, which is added to
// rest; exits of others go with their entries.
func (o *planner) giveUp(p *patch, rest []patchRequest, why string) []patchRequest {
	for _, w := range p.wants {
		c := o.course(w.p)
		c.tactic, c.why = plan.Breakpoint, why
		if w.kind != wantExit {
			rest = append(rest, w)
		}
	}
	return rest
}

// failedExits finds the return probes of exits of which a jump could not be placed in
// the functions that were planned last, and notes which.
func (o *planner) failedExits(todo []*assess.Function, plans map[*assess.Function]*functionPlan) map[*placed]bool {
	failed, said := map[*placed]bool{}, map[*placed]bool{}
	for _, f := range todo {
		for _, w := range plans[f].rest {
			c := o.course(w.p)
			if c.byExits == nil {
				continue
			}
			if failed[w.p] = true; w.kind == wantExit && !said[w.p] {
				said[w.p] = true
				c.why = fmt.Sprintf("%s can't be a jump: %s", w.Site.Name, c.why)
			}
		}
	}
	return failed
}

// giveUpExits takes return probes out of what is planned, and the others at
// their entries, and gives them as what is for breakpoints. Those that can do
// with return trampolines stay. changed are the functions of which something is planned
// otherwise now.
func (o *planner) giveUpExits(failed map[*placed]bool, list []*assess.Function, groups map[*assess.Function][]patchRequest) (given []patchRequest, changed []*assess.Function) {
	at := map[symbols.Addr]bool{}
	for more := true; more; {
		more = false
		for p := range failed {
			if !o.course(p).landable {
				at[p.where.Addr] = true
			}
		}
		for _, f := range list {
			for i := range groups[f] {
				w := &groups[f][i]
				if !at[w.Site.Addr] {
					continue
				}
				if c := o.course(w.p); c.byExits != nil && (!failed[w.p] || c.landable) {
					c.landable = false
					failed[w.p], more = true, true
					c.why = whyOther
				}
			}
		}
	}
	for _, f := range list {
		if !slices.ContainsFunc(groups[f], func(w patchRequest) bool { return failed[w.p] || at[w.Site.Addr] }) {
			continue
		}
		changed = append(changed, f)
		kept := groups[f][:0:0]
		for _, w := range groups[f] {
			switch {
			case failed[w.p] && w.kind == wantExit:
			case failed[w.p] && o.course(w.p).landable:
				kept = append(kept, w)
			case failed[w.p]:
				given = append(given, w)
			case at[w.Site.Addr]:
				o.course(w.p).why = whyOther
				given = append(given, w)
			default:
				kept = append(kept, w)
			}
		}
		groups[f] = kept
	}
	for p := range failed {
		if c := o.course(p); c.landable {
			c.byExits = nil // by a return trampoline, then
		} else {
			c.giveUpExits(p.goABI)
		}
	}
	return given, changed
}

// trapped gives the places of which rest, or kprobe itself, has a breakpoint.
func (o *planner) trapped(rest []patchRequest) map[symbols.Addr]bool {
	at := make(map[symbols.Addr]bool, len(rest))
	for _, w := range rest {
		if w.kind != wantExit {
			at[w.Site.Addr] = true
		}
	}
	for _, x := range o.own {
		at[x.Site.Addr] = true
	}
	return at
}

// hides reports whether a jump would lie under one of the breakpoints: neither could be
// undone then without the other.
func (p *patch) hides(trapped map[symbols.Addr]bool) bool {
	for r := range p.plan.Owns() {
		for a := r.Lo; a < r.Hi; a++ {
			if trapped[symbols.Addr(a)] {
				return true
			}
		}
	}
	return false
}

// allOrNone gives up return probes of exits that have lost a patch, and with them
// what shares their patches, and jumps where there are to be breakpoints.
func (o *planner) allOrNone(patches []*patch, ws, rest []patchRequest) ([]*patch, []patchRequest) {
	given := map[*placed]bool{} // those that are in rest, or will be
	for _, w := range rest {
		given[w.p] = true
	}
	entries := map[*placed]patchRequest{}
	for _, w := range ws {
		if w.kind != wantExit && w.kind != requestExit {
			entries[w.p] = w
		}
	}
	giveUp := func(x *placed) {
		o.course(x).giveUpExits(x.goABI)
		if !given[x] {
			given[x] = true
			rest = append(rest, entries[x])
		}
	}
	for {
		have := map[*placed]int{}
		for _, p := range patches {
			for _, w := range p.wants {
				have[w.p]++
			}
		}
		broken := map[*placed]bool{}
		for x := range entries {
			by := o.course(x).byExits
			broken[x] = by != nil && have[x] < by.places()
		}
		trapped := o.trapped(rest)
		hidden := map[*patch]bool{}
		for _, p := range patches {
			if !p.hides(trapped) {
				continue
			}
			hidden[p] = true
			for _, w := range p.wants {
				if o.course(w.p).byExits != nil {
					broken[w.p] = true
				}
			}
		}
		kept := patches[:0]
		for _, p := range patches {
			if !hidden[p] && !slices.ContainsFunc(p.probes(), func(x *placed) bool { return broken[x] }) {
				kept = append(kept, p)
				continue
			}
			for _, w := range p.wants {
				if o.course(w.p).byExits != nil {
					continue
				}
				o.course(w.p).why = "it shares a jump with another probe, whose jumps could not all be placed"
				if w.kind == requestExit {
					rest = append(rest, w)
				} else {
					giveUp(w.p)
				}
			}
		}
		done := len(hidden) == 0
		for x, is := range broken {
			if is {
				done = false
				if !given[x] {
					o.course(x).why = "a jump at one of its exits could not be placed"
				}
				giveUp(x)
			}
		}
		if patches = kept; done {
			return patches, once(rest)
		}
	}
}

// once leaves out what was given up twice, for want of two patches.
func once(ws []patchRequest) []patchRequest {
	type key struct {
		p    *placed
		at   symbols.Addr
		kind wantKind
		way  detour.Passing
	}
	seen := map[key]bool{}
	out := ws[:0]
	for _, w := range ws {
		k := key{w.p, w.Site.Addr, w.kind, w.passing}
		if seen[k] {
			continue
		}
		seen[k] = true
		out = append(out, w)
	}
	return out
}
