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

// Probe is what a plan knows of a probe. Plans tell probes apart by their pointers. There may be a hundred
// thousand of them.
type Probe struct {
	Id      uint32 // its number in the memory file
	Most    int32  // how many of its calls are followed at the same time
	Program *fetch.Program
	Where   *symbols.Site // the site that was asked for; nearly always that of its own request
	Owner   any           // the engine's probe; the planner doesn't use it
	Rare    *RareProbe    // nil: all of it is zero
	GoABI   bool          // its calls are identified by goroutine, and its exits are requests
	Facts
	Course // how it is armed now
}

// RareProbe is what few probes have.
type RareProbe struct {
	// Handlers is the reason why its registered handlers need a breakpoint. BreakpointOnly is a
	// reason why any plan must make it a breakpoint. "": there is none.
	Handlers, BreakpointOnly string
	Birth                    *detour.Birth   // set for a probe of kprobe's own that only watches births
	Landing                  *detour.Landing // set for a probe of kprobe's own that sees calls where they return to
	Besides                                  // what else its detours do
}

// Rarely is what few probes have, for reading.
func (p *Probe) Rarely() RareProbe {
	if p.Rare == nil {
		return RareProbe{}
	}
	return *p.Rare
}

// SetRare sets what few probes have.
func (p *Probe) SetRare(x RareProbe) {
	if p.Rare = nil; x != (RareProbe{}) {
		p.Rare = new(RareProbe)
		*p.Rare = x
	}
}

// Facts say how the session takes a probe's hits.
type Facts struct {
	Silent   bool // hits make no records
	Counts   bool // a hit only increments a counter
	Anywhere bool // any return to which its function's calls may come may count as the return of one
	Onward   bool // breakpoints may follow a call from a jump through a register or memory on
	Limited  bool // the number of calls to follow was given
}

// Besides is what only few detours do.
type Besides struct {
	Inject  *detour.Injection
	Control *detour.Control
	Bins    *detour.Bins
}

// Course says how a probe is armed. A plan has one for each of its probes. When the plan is committed, it
// becomes the probe's.
type Course struct {
	Tactic plan.Tactic // how it is armed
	// Analysed says that Trapped is known. Landable says that its calls may return by return trampolines.
	Analysed, Landable bool

	Why string // the reason why it has no better tactic; "": none
	// ByTrampolines is set if its calls return by return trampolines, or may have to in the end.
	ByTrampolines *TrampolineWay
	// ByExits is set if its returns are seen at exits.
	ByExits *ExitWay
	Trapped string // the reason why breakpoints must follow its calls; "": they need not
}

// Way is how jumps see the probe's returns; nil: breakpoints do, or the probe isn't planned yet.
func (c *Course) Way() Way {
	switch {
	case c.ByExits != nil:
		return c.ByExits
	case c.ByTrampolines != nil:
		return c.ByTrampolines
	}
	return nil
}
