package planner

import (
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/gocode"
)

// goStack says how the detour of a probe in Go code gets its stack, or why it
// can have none.
func (o *planner) goStack(f *assess.Function, w Request) (gocode.Stack, string) {
	return f.GoCode(o.ground.Golang.Of(w.Site.Module.File)).Stack(uint64(w.Site.Addr - f.Start))
}

// goParams are the parameters of the detour of a probe: in Go code those of its
// small stacks.
func (o *planner) goParams(w Request) detour.Params {
	p := o.params
	switch w.Stack.Room {
	case gocode.Look:
		p.NoRedZone = !w.Stack.RedZone
		p.Look = &detour.Look{Free: uint16(w.Stack.Free), Flags: w.Stack.Flags, TLS: w.Stack.TLS}
		p.MaxStack = gocode.StackBytes
	case gocode.Checked:
		p.MaxStack = gocode.StackBytes
	}
	return p
}

// jumps reports whether a want is the exit of a Go function that goes by jumps:
// those are in byExits.
func (o *planner) jumps(w Request) bool {
	return w.Kind == Exit && w.P.GoABI && o.course(w.P).ByExits != nil
}

// goCalls judges the return probes of Go functions in a batch, and lists those of
// exits.
func (o *planner) goCalls(ws []Request) (goes []*Probe) {
	for _, w := range ws {
		if w.Kind == Return && w.P.GoABI && o.followReturn(w) == "" {
			goes = append(goes, w.P)
		}
	}
	return goes
}

// followGo says why the calls of a Go function must be followed by breakpoints; ""
// if by its exits.
func (o *planner) followGo(w Request) (*ExitWay, string) {
	f, err := o.ground.Code.Of(w.Site)
	if err != nil {
		return nil, err.Error()
	}
	if need := w.P.Program.NeedsTracer(); need != "" {
		return nil, need + " can be had by the tracer only"
	}
	if !f.GoCode(o.ground.Golang.Of(w.Site.Module.File)).KeepsG() {
		return nil, "it is not of Go's compiler or doesn't check its stack: its goroutine isn't known, or there may be no room for a detour"
	}
	list, err := OwnExits(o.ground.Exits, f, *w.P.Where, w.P)
	if err != nil {
		return nil, err.Error()
	}
	if len(list) > exits.Most {
		return nil, "it has too many exits"
	}
	for i := range list {
		e := &list[i]
		if e.Conditional {
			return nil, "it leaves the function or not at " + e.Site.Name + ", as the flags say"
		}
		if e.Stack, _ = o.goStack(f, *e); e.Stack.Room != gocode.Checked {
			return nil, "there may be no room for a detour at " + e.Site.Name
		}
	}
	return &ExitWay{Probe: w.P, Exits: list}, ""
}
