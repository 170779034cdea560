package planner

import (
	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/gocode"
	"kprobe/symbols"
)

// Request asks for a patch at one place of one definition. There are hundreds of thousands of them, so what few
// have is elsewhere.
type Request struct {
	*assess.Place
	P           *Probe
	rare        *rare  // nil: all of it is zero. Copies of the request share it, so it is never changed.
	Pop         uint16 // for a return: bytes that it pops beyond the return address
	Kind        Kind
	Passing     detour.Passing // for an exit that isn't a return: how calls pass on there
	Notes       bool           // the exit is a jump that notes calls (alonereturns.go)
	Conditional bool           // the exit is a conditional jump
	Alone       bool           // the exit of a probe by exits is a hit by itself (alonereturns.go)
	Twins       Twins          // other probes at the same entry that note the call in the same table
}

// Twins are other probes of a function that note its calls in the same table.
type Twins uint8

const (
	TwinBefore Twins = 1 << iota // one notes the call before
	TwinBehind                   // one notes it behind
)

// rare is what few requests have.
type rare struct {
	open  *fetch.Chain
	to    symbols.Addr
	stack gocode.Stack
}

func (w *Request) rarely() rare {
	if w.rare == nil {
		return rare{}
	}
	return *w.rare
}

func (w *Request) setRare(x rare) {
	if w.rare = nil; x != (rare{}) {
		w.rare = &x
	}
}

// Open is for an exit by a jump through a register or memory: how to compute where it leads. It is nil for
// others.
func (w *Request) Open() *fetch.Chain { return w.rarely().open }

func (w *Request) setOpen(c *fetch.Chain) {
	x := w.rarely()
	x.open = c
	w.setRare(x)
}

// To is the address of a Redirect's detour.
func (w *Request) To() symbols.Addr { return w.rarely().to }

// Redirect makes the request a Redirect to a detour.
func (w *Request) Redirect(to symbols.Addr) {
	x := w.rarely()
	w.Kind, x.to = Redirect, to
	w.setRare(x)
}

// stack is what a detour in Go code has to know of its stack.
func (w *Request) stack() gocode.Stack { return w.rarely().stack }

func (w *Request) setStack(s gocode.Stack) {
	x := w.rarely()
	x.stack = s
	w.setRare(x)
}

// Kind is what a request is for.
type Kind uint8

const (
	// Entry is for a hit when the place is reached.
	Entry Kind = iota
	// Return is the entry of a function whose returns are hits.
	Return
	// Exit is a place where such a function is left.
	Exit
	// LoneExit is an exit that is a hit by itself; the entry isn't patched.
	LoneExit
	// Redirect is a breakpoint that only leads into a detour.
	Redirect
	// Watch is watched memory, by a debug register; nothing is written.
	Watch
)

// Within reports whether the request's place is in the same function as at.
func (w *Request) Within(at symbols.Site) bool {
	return w.Site.Module == at.Module && w.Site.Func.Start == at.Func.Start
}

// TrapsByKind is the reason why a request must be a breakpoint because of its kind; "" if it may be a jump.
func (w *Request) TrapsByKind() string {
	switch {
	case w.Kind == Entry && w.P.Rarely().Handlers != "":
		return w.P.Rarely().Handlers
	case w.Kind == LoneExit && w.Conditional:
		return "whether it leaves the function depends on flags"
	case w.Kind != Entry && w.Kind != Return && w.Kind != LoneExit:
		return "it is followed by breakpoints"
	}
	return ""
}

// TrapsByPlace is the reason why a request must be a breakpoint because of its place or of what it records
// there; "" if it may be a jump.
func (w *Request) TrapsByPlace() string {
	if w.P.Rarely().BreakpointOnly != "" {
		return w.P.Rarely().BreakpointOnly
	}
	if why := assess.NeverJump(w.Site); why != "" {
		return why
	}
	if need := w.P.Program.NeedsTracer(); need != "" {
		return need + " can be read only by the tracer"
	}
	return ""
}
