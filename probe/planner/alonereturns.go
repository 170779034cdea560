package planner

import (
	"slices"

	"kprobe/probe/detour"
	"kprobe/symbols"
)

// Returns that are counted where they happen
//
// If many functions' returns are counted and nothing else is asked of them, most calls need no
// note. A function that is entered only at its start, and left only by its own return
// instructions, returns whenever one of them runs: each is a hit by itself, and the entry isn't
// patched. So a call costs one detour that increments a number, no row of a table, and half of
// the memory. Calls that were active when the probes came, or were entered while these were
// off, are hits when they return.
//
// If such a function jumps on to another one, the jump notes the call, as one that passes on
// (detour.BuildJump). The call returns by the other's returns, which look into the common
// table, as for any call that is noted at its entry. A call that returns by the function's own
// returns costs no row.
//
// If some functions of the batch jump to an address in a register, calls may arrive by such a jump
// at any function whose address is in data (probe/engine, onward.go). So the entries and the returns
// of these functions look into the common table, like those of functions that are known to be jumped to.
//
// Two kinds of functions note their calls at their entries: those that jump to addresses that
// only the program knows; and those to which a jump of theirs may come back, or whose calls return
// by parts of code that lie apart.

// maxAlone is the largest number of returns that are patched in a function of which nothing else is
// patched.
const maxAlone = 16

// countReturns notes whether a batch has at least commonFrom return probes whose numbers of calls weren't given, and
// whether it counts the returns of as many functions, so that most calls need no note.
func (o *planner) countReturns(ws []Request) {
	free, counted := 0, 0
	for i := range ws {
		p := ws[i].P
		if ws[i].Kind != Return || p.GoABI || p.Limited {
			continue
		}
		free++
		if o.countable(p) {
			counted++
		}
	}
	o.manyFree, o.manyCounted = free >= commonFrom, counted >= commonFrom
	o.ground.Exits.Wide = o.manyCounted
}

// countable reports whether each return of the probe's function may count as a hit.
func (o *planner) countable(p *Probe) bool { return p.Anywhere && !p.Limited }

// mayBeAlone reports whether a function's own instructions allow it to be probed at its returns alone.
func (o *planner) mayBeAlone(p *Probe, l *ExitWay) bool {
	return o.manyCounted && o.countable(p) &&
		(l.own && len(l.Exits) <= maxAlone || l.plain && detour.CanBeCommon(p.Program))
}

// findAlone decides which new return probes count their functions' returns without noting calls. Probes
// that were to use exits only for this go by return trampolines if they can't.
func (o *planner) findAlone(ps []*Probe) {
	fresh := func(p *Probe) *ExitWay {
		if x := o.course(p).ByExits; x != nil && x != p.ByExits {
			return x
		}
		return nil
	}
	open := slices.ContainsFunc(ps, func(p *Probe) bool { x := fresh(p); return x != nil && x.Open != "" })
	for _, p := range ps {
		x := fresh(p)
		if x == nil || !o.mayBeAlone(p, x) {
			continue
		}
		w := p.Where
		x.taken = open && w.Module.File.Leads(w.Vaddr)&symbols.LeadTaken != 0 && mayTake(p, x)
		x.Alone = !o.ground.Around.EnteredInside(w.Module, w.Vaddr)
		o.setAlone(p, x)
	}
	common, _ := o.inCommon(ps)
	for _, p := range ps { // outside the common table no jump can note a call
		if x := fresh(p); x != nil && x.Alone && (!x.own || x.taken) && !common[p] {
			x.Alone = false
			o.setAlone(p, x)
		}
	}
}

// mayTake reports whether the entry of a probe's function can tell calls that arrive there by a jump from others.
func mayTake(p *Probe, x *ExitWay) bool {
	return !x.StartsOver && p.Where.Offset == 0 && detour.CanBeCommon(p.Program)
}

// setAlone sets the exits of a probe according to x.Alone and x.taken.
func (o *planner) setAlone(p *Probe, x *ExitWay) {
	x.taken = x.taken && x.Alone
	x.Exits = x.Exits[:x.found]
	for i := range x.Exits {
		e := &x.Exits[i]
		mine := x.Alone && e.Within(*p.Where)
		e.Alone, e.Notes = mine && e.Passing == detour.NotPassing, mine && e.Passing == detour.PassesOn
	}
	if x.taken {
		x.Exits = append(x.Exits, Request{Place: x.entry, P: p, Kind: Exit, Passing: detour.Arrives})
		for _, e := range x.Exits[:x.found] {
			if e.Alone {
				e.Alone = false
				x.Exits = append(x.Exits, e)
			}
		}
	}
	if c := o.course(p); !x.Alone && c.Landable && !x.cheap(*p.Where) && !o.mayShare(p, x) {
		c.ByExits = nil
	}
}

// patched selects from a function's requests those whose places are patched: all except entries of
// probes that need only their exits.
func (o *planner) patched(ws []Request) []Request {
	skip := func(w Request) bool {
		x := o.course(w.P).ByExits
		return w.Kind == Return && x != nil && x.Alone
	}
	switch i := slices.IndexFunc(ws, skip); {
	case i < 0:
		return ws
	case i == 0 && !slices.ContainsFunc(ws[1:], skip):
		return ws[1:]
	}
	return slices.DeleteFunc(slices.Clone(ws), skip)
}
