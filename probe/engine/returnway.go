package engine

import (
	"iter"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How jumps see the calls of a return probe
//
// The planner chooses the way (probe/planner, returnway.go); what is done with threads and
// calls in a target is here, in returnexits.go and in returntrampoline.go.

// returnWay is how returns are seen by jumps in a target.
type returnWay interface {
	planner.Way
	// inUse reports whether the probe, as it is armed now, notes its calls there.
	inUse() bool
	// leave returns the program's registers for a thread in a stage's code that is not in the
	// displaced instructions. ok is false if they can't be found out.
	leave(st stage, regs *unix.PtraceRegs, mem symbols.Memory) (out *unix.PtraceRegs, ok bool)
	// rollBack moves a thread that faults in a stage's code out of it. done is false if it
	// can't.
	rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool)
	// abandoned reports whether a call won't return. All threads are stopped; sps are their
	// stack pointers.
	abandoned(tg *Target, in detour.Instance, sps []uint64) bool
}

// runningWay is the returnWay of a planned way.
func runningWay(w planner.Way) returnWay {
	switch w := w.(type) {
	case *planner.ExitWay:
		return exitReturns{w}
	case *planner.TrampolineWay:
		return trampolineReturns{w}
	}
	panic("engine: a way of a return that isn't known")
}

// ways are all ways that may hold calls of the probe. A probe by exits may have return trampolines,
// too: it falls back to them, or used them before.
func (p *Placed) ways() iter.Seq[returnWay] {
	return func(yield func(returnWay) bool) {
		if p.ByExits != nil && !yield(exitReturns{p.ByExits}) {
			return
		}
		if p.ByTrampolines != nil {
			yield(trampolineReturns{p.ByTrampolines})
		}
	}
}
