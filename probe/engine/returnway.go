package engine

import (
	"fmt"
	"iter"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// The ways of a return
//
// How the calls of a return probe are noted, and their returns seen:
//
//	by exits             returnexits.go: jumps at the entry and where the function returns; in
//	                     Go's code gocalls.go; where returns are only counted, at the exits
//	                     alone (alonereturns.go)
//	by return trampolines  returntrampoline.go: a jump at the entry, whose code calls the function
//	by breakpoints       returnbreakpoint.go: at the entry, where the function returns
//	                     (returnwatch.go), or where the call returns to
//
// chooseReturn says which; the planner goes from exits to return trampolines, and to breakpoints
// at last, where jumps can't be placed (giveup.go). The first two note calls in memory of
// the target, by code of its own: they are a returnWay. What breakpoints see is noted in
// this process (instance.go).

// returnWay is how jumps see the calls of a return probe: by exits, or by return
// trampolines.
type returnWay interface {
	// of is the return probe whose way it is.
	of() *Placed
	// Memory is where calls that are under way are noted in the target.
	Memory() callMemory
	// At is its address; 0: it has none.
	At() uint64
	// blank is what that memory holds before the first call, to be written at its
	// address.
	blank(s *detour.Shared) []byte
	// inUse reports whether calls may be noted there that are the probe's as it is armed
	// now.
	inUse() bool
	// owns reports whether a call that is noted in mem, a copy of the memory, is one of a
	// probe's: several may have one memory.
	owns(mem []byte, number int, p *Placed) bool
	// outlives says that calls which are under way return by the way's own code: it must
	// stay for them when the probe goes.
	outlives() bool
	// buildEntry builds the code of the function's entry as a stage. The last of ws is the
	// return probe, the others are entry probes of the same place.
	buildEntry(o *planner, st *stage, ws []PatchRequest, tail tailFunc) ([]byte, error)
	// leave gives the registers that a thread in a stage's code, behind no displaced
	// instruction, has in the program; ok is false where they can't be told.
	leave(st *stage, regs *unix.PtraceRegs, mem symbols.Memory) (out *unix.PtraceRegs, ok bool)
	// rollBack takes a thread out of a stage's code whose instruction faults; done is
	// false if it can't be.
	rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool)
	// abandoned reports whether a call won't return. sps are the stack pointers of all
	// threads, which are stopped.
	abandoned(tg *Target, in detour.Instance, sps []uint64) bool
	// suspects are the calls that the last look found abandoned.
	suspects() *map[int]detour.Instance
}

// instances is the target's memory for calls that are under way: a detour.Pool or
// detour.Calls.
type callMemory interface {
	Size() int // bytes
	Used(mem []byte) []detour.Instance
	Entry(mem []byte, number int) []byte
	Free(mem []byte, number int)
}

// noted is what the ways have in common.
type noted struct {
	probe *Placed
	left  map[int]detour.Instance
}

func (n *noted) of() *Placed                        { return n.probe }
func (n *noted) suspects() *map[int]detour.Instance { return &n.left }

// way is how jumps see the probe's returns; nil: its calls are followed by breakpoints,
// or nothing is planned yet.
func (c *course) way() returnWay {
	switch {
	case c.ByExits != nil:
		return c.ByExits
	case c.byTrampolines != nil:
		return c.byTrampolines
	}
	return nil
}

// ways are all that may have calls of the probe: with exits return trampolines, too, to
// which it falls back or by which it went before.
func (c *course) ways() iter.Seq[returnWay] {
	return func(yield func(returnWay) bool) {
		if c.ByExits != nil && !yield(c.ByExits) {
			return
		}
		if c.byTrampolines != nil {
			yield(c.byTrampolines)
		}
	}
}

// chooseReturn chooses how the returns of a probe are seen, as far as that is known before
// anything is placed: by exits, by return trampolines, or, where those can't be placed,
// either. why says why by neither: its calls are followed by breakpoints then.
func (o *planner) chooseReturn(w PatchRequest) (byExits *ExitProbe, byTrampolines bool, why string) {
	if w.P.goABI {
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
	case noTrampolines == "" && byExits != nil && (byExits.cheap(w.Site) || byExits.own && o.mayBeAlone(w.P, byExits)):
		return byExits, true, ""
	case noTrampolines == "":
		return nil, true, ""
	case byExits != nil:
		return byExits, false, ""
	}
	return nil, false, why
}

// followReturn says why the calls of a return probe must be followed by breakpoints; "" if
// its course has another way. That is chosen once, until it is given up.
func (o *planner) followReturn(w PatchRequest) string {
	c := o.course(w.P)
	switch {
	case w.P.user.handles():
		return w.P.user.whyTrap()
	case c.ByExits != nil:
		return ""
	case !c.analysed:
		c.analysed = true
		c.ByExits, c.landable, c.trapped = o.chooseReturn(w)
	}
	return c.trapped
}
