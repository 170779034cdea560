package planner

import (
	"fmt"

	"kprobe/probe/detour"
)

// The ways of a return
//
// How the calls of a return probe are noted, and their returns seen:
//
//	by exits               exitway.go: jumps at the entry and where the function returns; in
//	                       Go code gocode.go; if returns are only counted, at the exits
//	                       alone (alonereturns.go)
//	by return trampolines  trampolineway.go: a jump at the entry, whose code calls the function
//	by breakpoints         probe/engine: at the entry, and where the function returns, or at the
//	                       address that the call returns to
//
// chooseReturn decides. The planner falls back from exits to return trampolines, and finally to
// breakpoints, if jumps can't be placed (giveup.go). The first two note calls in memory of the
// target, by code of their own: each is a Way. For breakpoints probe/engine notes calls in its
// own memory.

// CallMemory is the layout of the target's memory for active calls: a detour.Pool or detour.Calls.
type CallMemory interface {
	Size() int // bytes
	Used(mem []byte) []detour.Instance
	Entry(mem []byte, number int) []byte
	Free(mem []byte, number int)
}

// Way is how jumps see the calls of a return probe: an *ExitWay or a *TrampolineWay.
type Way interface {
	// Of is the way's return probe.
	Of() *Probe
	// Memory is the memory in which the target notes active calls.
	Memory() CallMemory
	// At is the address of that memory; 0: it has none yet.
	At() uint64
	// Blank is the initial contents of that memory.
	Blank(s *detour.Shared) []byte
	// Owns reports whether call number in mem, a copy of that memory, is a call of p. Several
	// probes may use the same memory.
	Owns(mem []byte, number int, p *Probe) bool
	// Outlives says that active calls return by the way's own code, which must stay for them
	// after the probe is removed.
	Outlives() bool
	// buildEntry builds the code of the function's entry as a stage. The last of ws is the
	// return probe, the others are entry probes of the same place.
	buildEntry(o *planner, st *Stage, ws []Request, tail tailFunc) ([]byte, error)
}

// chooseReturn chooses how the returns of a probe are seen, before any jump is placed. byExits is set for
// exits, byTrampolines for return trampolines. Both are set if the probe uses exits and may fall back
// to return trampolines. With neither, breakpoints follow its calls, and why is the reason.
func (o *planner) chooseReturn(w Request) (byExits *ExitWay, byTrampolines bool, why string) {
	if w.P.GoABI {
		byExits, why = o.followGo(w)
		return byExits, false, why
	}
	noTrampolines := o.followable(w)
	why = noTrampolines
	if leavable(w) == "" {
		var err error
		if byExits, err = o.leavings(w); err != nil {
			why = fmt.Sprintf("%s, and its exits can't be probed: %v", noTrampolines, err)
		}
	}
	switch {
	case noTrampolines == "" && byExits != nil && (byExits.cheap(w.Site) || o.mayBeAlone(w.P, byExits) || o.mayShare(w.P, byExits)):
		return byExits, true, ""
	case noTrampolines == "":
		return nil, true, ""
	case byExits != nil:
		return byExits, false, ""
	}
	return nil, false, why
}

// followReturn is the reason why breakpoints must follow the calls of a return probe; "" if its course has
// another way. The way is chosen once, and stays until it is given up.
func (o *planner) followReturn(w Request) string {
	c := o.course(w.P)
	switch {
	case w.P.Rarely().Handlers != "":
		return w.P.Rarely().Handlers
	case c.ByExits != nil:
		return ""
	case !c.Analysed:
		c.Analysed = true
		c.ByExits, c.Landable, c.Trapped = o.chooseReturn(w)
	}
	return c.Trapped
}
