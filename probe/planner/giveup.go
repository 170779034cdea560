package planner

import (
	"fmt"
	"slices"
	"sync"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Which requests are given up together
//
// A return probe by exits gets all of its jumps or none. If it gets none, the other probes at the same
// entry are breakpoints, too.

// giveUp makes the probes that a patch was to serve breakpoints. It adds their requests to rest, except
// exits, which are given up with their entries.
func (o *planner) giveUp(p *Patch, rest []Request, why string) []Request {
	for _, w := range p.Wants {
		c := o.course(w.P)
		c.Tactic, c.Why = plan.Breakpoint, why
		if w.Kind != Exit {
			rest = append(rest, w)
		}
	}
	return rest
}

// failedExits finds the return probes by exits that lack a jump in the functions of todo. It notes the
// jump and the reason in their courses.
func (o *planner) failedExits(todo []*assess.Function, plans map[*assess.Function]*functionPlan) map[*Probe]bool {
	failed, said := map[*Probe]bool{}, map[*Probe]bool{}
	for _, f := range todo {
		for _, w := range plans[f].rest {
			c := o.course(w.P)
			if c.ByExits == nil {
				continue
			}
			if failed[w.P] = true; w.Kind == Exit && !said[w.P] {
				said[w.P] = true
				c.Why = fmt.Sprintf("%s can't be a jump: %s", w.Site.Name(), c.Why)
			}
		}
	}
	return failed
}

// giveUpExits gives up the exits of failed return probes. A probe that may use return trampolines stays
// in the plan with its entry. Any other is removed from the plan, together with the other probes at
// its entry, and given has them, for breakpoints. changed are the functions whose requests have
// changed.
func (o *planner) giveUpExits(failed map[*Probe]bool, list []*assess.Function, groups map[*assess.Function][]Request) (given []Request, changed []*assess.Function) {
	at, hides := map[symbols.Addr]bool{}, map[symbols.Addr]bool{}
	for more := true; more; {
		more = false
		for p := range failed {
			if o.course(p).Landable {
				hides[p.Where.Addr] = true // it uses return trampolines
			} else {
				at[p.Where.Addr] = true
			}
		}
		for _, f := range list {
			for i := range groups[f] {
				w := &groups[f][i]
				if w.Passing == detour.Arrives && hides[w.Site.Addr] && !failed[w.P] {
					failed[w.P], more = true, true
					o.course(w.P).Why = whyHidden(*w)
				}
				if !at[w.Site.Addr] {
					continue
				}
				if c := o.course(w.P); c.ByExits != nil && (!failed[w.P] || c.Landable) {
					c.Landable = false
					failed[w.P], more = true, true
					c.Why = WhyOther
				}
			}
		}
	}
	for _, f := range list {
		if !slices.ContainsFunc(groups[f], func(w Request) bool { return failed[w.P] || at[w.Site.Addr] }) {
			continue
		}
		changed = append(changed, f)
		kept := groups[f][:0:0]
		for _, w := range groups[f] {
			switch {
			case failed[w.P] && w.Kind == Exit:
			case failed[w.P] && o.course(w.P).Landable:
				kept = append(kept, w)
			case failed[w.P]:
				given = append(given, w)
			case at[w.Site.Addr]:
				o.course(w.P).Why = WhyOther
				given = append(given, w)
			default:
				kept = append(kept, w)
			}
		}
		groups[f] = kept
	}
	for p := range failed {
		if c := o.course(p); c.Landable {
			c.ByExits = nil // it uses return trampolines
		} else {
			c.GiveUpExits(p.GoABI)
		}
	}
	return given, changed
}

// trapped is the set of addresses at which rest or kprobe itself has a breakpoint.
func (o *planner) trapped(rest []Request) map[symbols.Addr]bool {
	at := make(map[symbols.Addr]bool, len(rest))
	for _, w := range rest {
		if w.Kind != Exit {
			at[w.Site.Addr] = true
		}
	}
	for _, a := range o.own {
		at[a] = true
	}
	return at
}

// hides reports whether a jump would have a byte with one of the breakpoints in common. Then neither could
// be removed without the other.
func (p *Patch) hides(trapped map[symbols.Addr]bool) bool {
	for r := range p.Plan.Owns() {
		for a := r.Lo; a < r.Hi; a++ {
			if trapped[symbols.Addr(a)] {
				return true
			}
		}
	}
	return false
}

// allOrNone gives up return probes by exits that have lost a patch, all probes that share patches with
// them, and jumps at places of breakpoints.
func (o *planner) allOrNone(patches []*Patch, ws, rest []Request) ([]*Patch, []Request) {
	given := map[*Probe]bool{} // probes with requests in rest
	for _, w := range rest {
		given[w.P] = true
	}
	isEntry := func(w Request) bool { return w.Kind != Exit && w.Kind != LoneExit }
	entries := sync.OnceValue(func() map[*Probe]Request { // few plans give anything up
		out := make(map[*Probe]Request, len(ws))
		for _, w := range ws {
			if isEntry(w) {
				out[w.P] = w
			}
		}
		return out
	})
	giveUp := func(x *Probe) {
		o.course(x).GiveUpExits(x.GoABI)
		if !given[x] {
			given[x] = true
			rest = append(rest, entries()[x])
		}
	}
	for {
		have := map[*Probe]int{} // of probes by exits
		for _, p := range patches {
			for _, w := range p.Wants {
				if o.course(w.P).ByExits != nil {
					have[w.P]++
				}
			}
		}
		broken := map[*Probe]bool{}
		for _, w := range ws {
			if by := o.course(w.P).ByExits; isEntry(w) && by != nil && have[w.P] < by.places() {
				broken[w.P] = true
			}
		}
		trapped := o.trapped(rest)
		hidden := map[*Patch]bool{}
		for _, p := range patches {
			if !p.hides(trapped) {
				continue
			}
			hidden[p] = true
			for _, w := range p.Wants {
				if o.course(w.P).ByExits != nil {
					broken[w.P] = true
				}
			}
		}
		kept := patches[:0]
		for _, p := range patches {
			if !hidden[p] && !slices.ContainsFunc(p.Wants, func(w Request) bool { return broken[w.P] }) {
				kept = append(kept, p)
				continue
			}
			for _, w := range p.Wants {
				if o.course(w.P).ByExits != nil {
					continue
				}
				o.course(w.P).Why = "it shares a jump with another probe, whose jumps could not all be placed"
				if w.Kind == LoneExit {
					rest = append(rest, w)
				} else {
					giveUp(w.P)
				}
			}
		}
		done := len(hidden) == 0
		for x := range broken {
			done = false
			if !given[x] {
				o.course(x).Why = "a jump at one of its exits could not be placed"
			}
			giveUp(x)
		}
		if patches = kept; done {
			return patches, once(rest)
		}
	}
}

// once removes duplicate requests. A request is in the list twice if two patches of its probe were lost.
func once(ws []Request) []Request {
	type key struct {
		p    *Probe
		at   symbols.Addr
		kind Kind
		way  detour.Passing
	}
	seen := map[key]bool{}
	out := ws[:0]
	for _, w := range ws {
		k := key{w.P, w.Site.Addr, w.Kind, w.Passing}
		if seen[k] {
			continue
		}
		seen[k] = true
		out = append(out, w)
	}
	return out
}
