package planner

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/plan"
)

// How functions are planned
//
// Each function is planned by itself, in order of address: which of its places get which jumps
// (probe/plan), and which get none. If a return probe must be given up (giveup.go), the
// functions that this touches are planned again.

// functionPlan is the plan for one function's probes.
type functionPlan struct {
	patches []*Patch
	rest    []Request
}

// functions plans the probes of all functions, in order of address. If an exit of a return probe can't be
// a jump, the probe is given up with everything at its entry (giveUpExits), and the functions that
// this changes are planned again. many says that decoded functions are released behind the planner.
func (o *planner) functions(groups map[*assess.Function][]Request, many bool) (patches []*Patch, rest []Request, err error) {
	list := slices.SortedFunc(maps.Keys(groups), func(a, b *assess.Function) int { return cmp.Compare(a.Start, b.Start) })
	plans := make(map[*assess.Function]*functionPlan, len(list))
	planned := PageIndex[*Patch]{}
	var given []Request
	for todo := list; len(todo) > 0; {
		if err := o.planEach(todo, groups, plans, planned, many); err != nil {
			return nil, nil, err
		}
		failed := o.failedExits(todo, plans)
		if len(failed) == 0 {
			break
		}
		var more []Request
		more, todo = o.giveUpExits(failed, list, groups)
		given = append(given, more...)
		for _, f := range todo {
			o.release(plans[f].patches)
			for _, p := range plans[f].patches {
				planned.Drop(p)
			}
			plans[f] = &functionPlan{}
		}
	}
	for _, f := range list {
		patches, rest = append(patches, plans[f].patches...), append(rest, plans[f].rest...)
	}
	return patches, append(rest, given...), nil
}

// planEach plans the probes of functions, each by itself.
func (o *planner) planEach(todo []*assess.Function, groups map[*assess.Function][]Request, plans map[*assess.Function]*functionPlan, planned PageIndex[*Patch], many bool) error {
	next, stop := o.preparedAhead(todo, groups, many)
	defer stop()
	slab := make([]functionPlan, len(todo))
	for i, f := range todo {
		if err := o.ground.Pause("planning jumps", i, len(todo)); err != nil {
			return err
		}
		got := next()
		o.take(f, got)
		x := &slab[i]
		if plans[f] = x; len(groups[f]) > 0 { // else all its requests were given up
			x.patches, x.rest = o.function(f, o.patched(groups[f]), planned)
		}
		if delete(o.prepared, f); many {
			f.Release()
			got.release()
		}
		for _, p := range x.patches {
			planned.Add(p)
		}
	}
	return nil
}

// take notes what was prepared for the function that is planned next.
func (o *planner) take(f *assess.Function, got preparedFunction) {
	if got.f != nil {
		f.Load(got.f)
	}
	o.prepared[f] = got
}

// function plans the probes of one function and builds their detours. If copies take more room than
// copyRoom, the function is planned once more, with maxCopyRoom.
func (o *planner) function(f *assess.Function, ws []Request, planned PageIndex[*Patch]) (patches []*Patch, rest []Request) {
	o.code = f
	defer func() {
		o.generous, o.code = false, nil
		clear(o.sketches)
	}()
	why := make([]string, len(ws))
	for i, w := range ws {
		why[i] = o.course(w.P).Why
	}
	patches, rest, short := o.functionOnce(f, ws, planned)
	if !short {
		return patches, rest
	}
	o.release(patches)
	for i, w := range ws {
		o.course(w.P).Why = why[i]
	}
	o.generous = true
	patches, rest, _ = o.functionOnce(f, ws, planned)
	return patches, rest
}

// functionOnce plans and builds once. short says that a detour did not fit the room that was reserved.
func (o *planner) functionOnce(f *assess.Function, ws []Request, planned PageIndex[*Patch]) (patches []*Patch, rest []Request, short bool) {
	if len(ws) == 0 {
		return nil, nil, false
	}
	o.sites.fill(ws)
	byAddr, sites := o.sites.byAddr, o.sites.sites
	giveUp := func(a uint64, why string) {
		for _, w := range byAddr.take(a) {
			o.course(w.P).Why = why
			rest = append(rest, w)
		}
	}
	giveUpAll := func(why string) {
		for _, s := range byAddr {
			giveUp(s.at, why)
		}
	}
	for i := range sites {
		room, err := o.room(sites[i].Addr, byAddr.at(sites[i].Addr))
		if err != nil {
			giveUp(sites[i].Addr, err.Error())
			sites[i].Trap = true
			continue
		}
		sites[i].Room = room
	}
	if err := o.prepared[f].err; err != nil {
		giveUpAll(err.Error())
		return nil, rest, false
	}
	taken := o.taken(f, ws[0].Site.Module, planned)
	code := o.prepared[f].plan
	plans, err := plan.Plan(code, sites, o.space, taken)
	again := func() {
		release(o.space, plans)
		plans, err = plan.Plan(code, sites, o.space, taken)
	}
	if err == nil && wantsMore(plans, sites) {
		if wide := o.ground.Around.Wide(f.Sweep, f.Fn, ws[0].Site.Module); wide != nil {
			code = wide
			again()
		}
	}
	if err == nil && wantsMore(plans, sites) {
		o.space.Spared(again)
	}
	if err != nil {
		giveUpAll(err.Error())
		return nil, rest, false
	}
	for _, p := range plans {
		built, err := o.build(p, byAddr)
		if errors.Is(err, errRoom) {
			short = true
			release(o.space, []*plan.Patch{p})
		}
		if err == nil {
			built.trim(o.space)
		}
		why := p.Why
		if err != nil {
			why = err.Error()
		}
		for _, a := range p.AllSites() {
			if err != nil || !p.Tactic.Jump() {
				giveUp(a, why)
			}
		}
		if err == nil && p.Tactic.Jump() {
			patches = append(patches, built)
			for _, a := range p.AllSites() {
				for _, w := range byAddr.take(a) {
					if w.Kind != Exit || w.Alone || w.Notes {
						c := o.course(w.P)
						c.Tactic, c.Why = p.Tactic, p.Why
					}
				}
			}
		}
	}
	giveUpAll("no tactic was found for it")
	return patches, rest, short
}

// wantsMore reports whether one of the plans is a breakpoint although a jump was wanted.
func wantsMore(plans []*plan.Patch, sites []plan.Site) bool {
	return slices.ContainsFunc(plans, func(p *plan.Patch) bool {
		return p.Tactic == plan.Breakpoint && slices.ContainsFunc(sites, func(s plan.Site) bool {
			return s.Addr == p.Sites[0] && !s.Trap
		})
	})
}

// release frees the room of patches that are not used.
func (o *planner) release(patches []*Patch) {
	for _, p := range patches {
		for q := p; q != nil; q = q.Island {
			o.space.Release(q.Plan.Detour, int(q.Plan.Room))
		}
	}
}

// release frees the room of jumps that are not used.
func release(space *plan.Space, plans []*plan.Patch) {
	for _, p := range plans {
		for q := p; q != nil && q.Tactic.Jump(); q = q.Island {
			space.Release(q.Detour, q.Room)
		}
	}
}
