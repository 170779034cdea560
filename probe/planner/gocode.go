package planner

import (
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/gocode"
)

// goStack finds out how the detour of a probe in Go code gets its stack. The string is the reason why it
// can't have one; "": it can.
func (o *planner) goStack(f *assess.Function, w Request) (gocode.Stack, string) {
	return f.GoCode(o.ground.Golang.Of(w.Site.Module.File)).Stack(uint64(w.Site.Addr - f.Start))
}

// goParams are the parameters of a request's detour. In Go code they contain how the detour gets its stack. They hold
// until the next call.
func (o *planner) goParams(w Request) *detour.Params {
	p := &o.staged
	*p = o.params
	switch stack := w.stack(); stack.Room {
	case gocode.Look:
		p.NoRedZone = !stack.RedZone
		p.Look = &detour.Look{Free: uint16(stack.Free), Flags: stack.Flags, TLS: stack.TLS}
		p.MaxStack = gocode.StackBytes
	case gocode.Checked:
		p.MaxStack = gocode.StackBytes
	}
	return p
}

// jumps reports whether a request is an exit of a Go function by a jump. Such exits are also in
// Course.ByExits.
func (o *planner) jumps(w Request) bool {
	return w.Kind == Exit && w.P.GoABI && o.course(w.P).ByExits != nil
}

// goCalls chooses the way of the return probes of Go functions in a batch, and lists those by exits.
func (o *planner) goCalls(ws []Request) (goes []*Probe) {
	for _, w := range ws {
		if w.Kind == Return && w.P.GoABI && o.followReturn(w) == "" {
			goes = append(goes, w.P)
		}
	}
	return goes
}

// followGo makes the ExitWay of a Go function. The string is the reason why its calls must be followed by
// breakpoints instead; "": they need not.
func (o *planner) followGo(w Request) (*ExitWay, string) {
	f, err := o.ground.Code.Of(w.Site)
	if err != nil {
		return nil, err.Error()
	}
	if need := w.P.Program.NeedsTracer(); need != "" {
		return nil, need + " can be read only by the tracer"
	}
	if !f.GoCode(o.ground.Golang.Of(w.Site.Module.File)).KeepsG() {
		return nil, "Go did not compile it, or it doesn't check its stack: its goroutine isn't known, or there may be no room for a detour"
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
			return nil, "whether it leaves the function at " + e.Site.Name() + " depends on flags"
		}
		stack, _ := o.goStack(f, *e)
		if e.setStack(stack); stack.Room != gocode.Checked {
			return nil, "there may be no room for a detour at " + e.Site.Name()
		}
	}
	return &ExitWay{Probe: w.P, Exits: list}, ""
}
