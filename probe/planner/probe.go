package planner

import (
	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// What a plan knows about a probe
//
// A probe's definition says what is recorded where. How the session takes its hits says what
// its detours do. Both are determined before a change is planned, and stay the same meanwhile:
// the planner asks neither session nor process, and changes no probe.

// Probe is what a plan knows of a probe. Plans tell probes apart by their pointers.
type Probe struct {
	Id      uint32 // in the memory file
	Most    int    // how many of its calls are followed at once
	Program *fetch.Program
	Where   *symbols.Site // where it was asked for: its own request's, nearly always
	Owner   any           // who made it, and finds it again by this: the planner doesn't look at it
	// Handlers says why it is a breakpoint for the handlers of who registered it, and
	// BreakpointOnly why it is one whatever is planned; "": it isn't.
	Handlers, BreakpointOnly string
	Birth                    *detour.Birth // what is all that it does: it is kprobe's own
	GoABI                    bool          // its calls are recognised by goroutine, its exits are sites
	Facts
	Course // how it is armed now
}

// Facts are how the session takes a probe's hits.
type Facts struct {
	Silent   bool // a hit leaves no record
	Counts   bool // a hit is nothing but one more
	Anywhere bool // any return that its function's calls may come to may be counted as one of them
	Onward   bool // calls that a jump leads who knows where may be followed by breakpoints from there
	Limited  bool // somebody said how many of its calls are to be followed at once
	// Besides is what else its detours do; nil: nothing.
	Besides *Besides
}

// Besides is what few detours do.
type Besides struct {
	Inject  *detour.Injection
	Control *detour.Control
	Bins    *detour.Bins
}

// Course is how a probe is armed: a plan has one for each of its probes, and what is
// committed is the probe's.
type Course struct {
	Tactic plan.Tactic // how it is armed
	Why    string      // why it isn't a better tactic
	// ByTrampolines is set where its calls return by return trampolines, or may have to
	// in the end.
	ByTrampolines *TrampolineWay
	// ByExits is set where they are seen at its function's returns.
	ByExits *ExitWay
	// Analysed says that Trapped is known: why its calls must be followed by
	// breakpoints.
	Analysed bool
	Trapped  string
	// Landable says that its calls may return by return trampolines.
	Landable bool
}

// Way is how jumps see the probe's returns; nil: its calls are followed by breakpoints,
// or nothing is planned yet.
func (c *Course) Way() Way {
	switch {
	case c.ByExits != nil:
		return c.ByExits
	case c.ByTrampolines != nil:
		return c.ByTrampolines
	}
	return nil
}
