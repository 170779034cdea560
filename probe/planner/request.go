package planner

import (
	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/gocode"
	"kprobe/symbols"
)

// Request is one place of one definition that is to be armed.
type Request struct {
	*assess.Place
	P           *Probe
	Open        *fetch.Chain // of an exit that passes on: where it leads, if only the program knows
	To          symbols.Addr // of a redirection: the detour
	Stack       gocode.Stack
	Pop         uint16 // of an exit that takes a jump: what it takes off the stack besides
	Kind        Kind
	Passing     detour.Passing // of an exit that takes a jump and isn't a return
	Notes       bool           // of a jump: calls are noted there (alonereturns.go)
	Conditional bool           // an exit by a conditional jump
	Alone       bool           // an exit that is a hit by itself, of a probe of exits (alonereturns.go)
	Joins       bool           // another probe's calls are noted before at the same entry, in the same table
}

// Kind is what a request is for.
type Kind uint8

const (
	// Entry is for hits where the place is reached.
	Entry Kind = iota
	// Return is for the entry of a function whose returns are hits.
	Return
	// Exit is for a place where such a function is left.
	Exit
	// LoneExit is for an exit that is a hit by itself: its entry isn't patched.
	LoneExit
	// Redirect is for a breakpoint that only leads into a detour.
	Redirect
	// Watch is for memory, by a debug register: nothing is written.
	Watch
)

// Within reports whether the place is in the function of another.
func (w *Request) Within(at symbols.Site) bool {
	return w.Site.Module == at.Module && w.Site.Func.Start == at.Func.Start
}

// TrapsByKind says why a request is for a breakpoint by what it is; "" if it may be for
// a jump.
func (w *Request) TrapsByKind() string {
	switch {
	case w.Kind == Entry && w.P.Handlers != "":
		return w.P.Handlers
	case w.Kind == LoneExit && w.Conditional:
		return "it leaves the function or not, as the flags say"
	case w.Kind != Entry && w.Kind != Return && w.Kind != LoneExit:
		return "it is followed by breakpoints"
	}
	return ""
}

// TrapsByPlace says why a request is for a breakpoint by what is at its place, or by what
// it records there; "" if it may be for a jump.
func (w *Request) TrapsByPlace() string {
	if w.P.BreakpointOnly != "" {
		return w.P.BreakpointOnly
	}
	if why := assess.NeverJump(w.Site); why != "" {
		return why
	}
	if need := w.P.Program.NeedsTracer(); need != "" {
		return need + " can be had by the tracer only"
	}
	return ""
}
