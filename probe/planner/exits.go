package planner

import (
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/symbols"
)

// exitRequest makes the request for a patch at an exit of the probe's function.
func exitRequest(p *Probe, x exits.Exit) Request {
	w := Request{Place: x.Place, P: p, Kind: Exit, Pop: x.Pop, Passing: x.Passing, Conditional: x.Conditional}
	w.setOpen(x.Open)
	return w
}

// OwnExits makes a request for each instruction by which a Go function is left. A jump to another
// function is one, too: its hit is recorded before that function runs.
func OwnExits(x *exits.Finder, f *assess.Function, w symbols.Site, p *Probe) (out []Request, err error) {
	list, err := x.Own(f, w)
	for _, e := range list {
		out = append(out, exitRequest(p, e))
	}
	return out, err
}

// leavings makes the requests for all places where the function of a return probe may return. The error
// says why they aren't all known.
func (o *planner) leavings(w Request) (*ExitWay, error) {
	found, err := o.ground.Exits.Of(w.Site, w.P.Onward)
	if err != nil {
		return nil, err
	}
	// Code of others may run by the returns of what returns twice, or sets the stack: they are no hits by themselves.
	others := found.Outer || exits.Peculiar(w.Site.Func.Symbol.Name) == exits.ReturnsTwice
	l := newExitWay(len(found.List))
	l.Probe, l.Open, l.plain = w.P, found.Open, found.Plain && len(found.List) > 0 && !others
	for _, x := range found.List {
		l.Exits = append(l.Exits, exitRequest(w.P, x))
	}
	l.back, l.found, l.entry = found.Back, len(l.Exits), w.Place
	if f, err := o.ground.Code.Leaving(w.Site); err == nil {
		l.StartsOver = f.Leaving().StartsOver
	}
	l.own = len(l.Exits) > 0 && !others && !slices.ContainsFunc(l.Exits, func(e Request) bool {
		return e.Passing != detour.NotPassing || !e.Within(w.Site)
	})
	return l, nil
}
