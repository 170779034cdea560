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

// returnWay is a way of a return in a target.
type returnWay interface {
	planner.Way
	// inUse reports whether calls may be noted there that are the probe's as it is armed
	// now.
	inUse() bool
	// leave gives the registers that a thread in a stage's code, behind no displaced
	// instruction, has in the program; ok is false where they can't be told.
	leave(st *stage, regs *unix.PtraceRegs, mem symbols.Memory) (out *unix.PtraceRegs, ok bool)
	// rollBack takes a thread out of a stage's code whose instruction faults; done is
	// false if it can't be.
	rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool)
	// abandoned reports whether a call won't return. sps are the stack pointers of all
	// threads, which are stopped.
	abandoned(tg *Target, in detour.Instance, sps []uint64) bool
}

// runningWay is what is done in a target where returns are seen in a way.
func runningWay(w planner.Way) returnWay {
	switch w := w.(type) {
	case *planner.ExitWay:
		return exitReturns{w}
	case *planner.TrampolineWay:
		return trampolineReturns{w}
	}
	panic("engine: a way of a return that isn't known")
}

// ways are all that may have calls of the probe: with exits return trampolines, too, to
// which it falls back or by which it went before.
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
