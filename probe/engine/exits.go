package engine

import (
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// exitFinder finds exits of functions, while the process stays as it is.
func (tg *Target) exitFinder() *exits.Finder {
	return exits.New(tg.Space, tg.Proc, tg.assessor(), tg.funcs.leaving)
}

// exitRequest asks for a patch at an exit of the probe's function.
func exitRequest(p *Placed, x exits.Exit) PatchRequest {
	return PatchRequest{Place: x.Place, P: p, Kind: WantExit, pop: x.Pop, passing: x.Passing, conditional: x.Conditional, open: x.Open}
}

// within reports whether the place is in the function of another.
func (w *PatchRequest) within(at symbols.Site) bool {
	return w.Site.Module == at.Module && w.Site.Func.Start == at.Func.Start
}

// ownExits asks for a patch at each instruction by which a Go function is left. A
// jump into another function leaves it too: its hit is recorded before that
// function runs.
func ownExits(x *exits.Finder, f *assess.Function, w symbols.Site, p *Placed) (out []PatchRequest, err error) {
	list, err := x.Own(f, w)
	for _, e := range list {
		out = append(out, exitRequest(p, e))
	}
	return out, err
}

// leavings asks for patches where the function of a return probe may return. The error
// says why that isn't known.
func (o *planner) leavings(w PatchRequest) (*ExitProbe, error) {
	found, err := o.ground.exits.Of(w.Site, w.P.onward)
	if err != nil {
		return nil, err
	}
	l := &ExitProbe{noted: noted{probe: w.P}, open: found.Open, plain: found.Plain && len(found.List) > 0}
	for _, x := range found.List {
		l.Exits = append(l.Exits, exitRequest(w.P, x))
	}
	l.own = len(l.Exits) > 0 && !slices.ContainsFunc(l.Exits, func(e PatchRequest) bool {
		return e.passing != detour.NotPassing || !e.within(w.Site)
	})
	return l, nil
}

// describeExits notes how the function is left: what its returns pop, and
// whether it may jump on to other functions.
func (p *Placed) describeExits(f *assess.Function) {
	for _, x := range f.Leaving().Exits {
		switch x.Kind {
		case insn.ExitRet:
			p.pop = uint64(x.Pop)
		case insn.ExitTail, insn.ExitCondTail:
			p.tails = true
		}
	}
}

// jccTaken reports whether a conditional jump with this opcode's condition
// would be taken with these flags (Intel SDM vol. 1, table B-1).
func jccTaken(opcode byte, flags uint64) bool {
	const cf, pf, zf, sf, of = 1 << 0, 1 << 2, 1 << 6, 1 << 7, 1 << 11
	less := flags&sf != 0 != (flags&of != 0)
	var t bool
	switch opcode & 15 >> 1 {
	case 0:
		t = flags&of != 0
	case 1:
		t = flags&cf != 0
	case 2:
		t = flags&zf != 0
	case 3:
		t = flags&(cf|zf) != 0
	case 4:
		t = flags&sf != 0
	case 5:
		t = flags&pf != 0
	case 6:
		t = less
	case 7:
		t = less || flags&zf != 0
	}
	return t != (opcode&1 != 0)
}
