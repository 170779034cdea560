package planner

import (
	"iter"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Patch is a jump of a plan, for a probe or for several whose jumps would overlap: what
// it writes into the text, and the detours that it leads to.
type Patch struct {
	Plan   *plan.Patch
	Before []plan.Write // what its writes replace, the original bytes
	Wants  []Request    // what it serves, each once
	Stages []*Stage
	Island *Patch // instructions that are moved out of the way; armed first
}

// Stage is one piece of a patch's detour: the probes of one address, then the
// displaced instructions up to the next stage or the jump back.
type Stage struct {
	Base   symbols.Addr
	Size   int
	At     symbols.Addr   // the first displaced instruction
	Detour *detour.Detour // nil: only copies
	Wants  []Request      // what the detour serves
	// Way is that of the return probe whose code this is; nil: that of none. Leaves says
	// that it is an exit's.
	Way    Way
	Leaves bool
	// Trampolines are the return trampolines in the code; nil: there are none.
	Trampolines *detour.Return
	// Code are the displaced instructions from At on, whose copies are at CopyAt; the copies
	// take Copied bytes, and end without a jump back where open is set.
	Code   []byte
	CopyAt symbols.Addr
	Copied int
	open   bool
	// Onward is where a thread is in the program that stands at the jump behind the
	// copies, to the next stage; 0 if there is none.
	Onward symbols.Addr
	Text   []byte // until it is written
	sketch *detour.Sketch
}

// Owns gives the bytes that the patch, or the island that goes with it, writes or guards.
func (p *Patch) Owns() iter.Seq[plan.Range] { return p.Plan.Owns() }

// Exits is how the returns are seen whose code the stage is, where that is by exits; else nil.
func (s *Stage) Exits() *ExitWay {
	x, _ := s.Way.(*ExitWay)
	return x
}

// JumpsOn is where the jump of the stage leads; nil for a stage of anything else.
func (s *Stage) JumpsOn() *fetch.Chain {
	if !s.Leaves || len(s.Wants) == 0 {
		return nil
	}
	return s.Wants[0].Open
}

// Moved are the stage's copies: made anew, as they are asked for seldom and stages are
// many.
func (s *Stage) Moved() insn.Moved {
	if len(s.Code) == 0 {
		return insn.Moved{}
	}
	m, err := insn.RelocateWindow(s.Code, uint64(s.At), uint64(s.CopyAt), insn.Options{NoJumpBack: s.open})
	if err != nil {
		return insn.Moved{} // they were made once
	}
	return m
}

// Holds reports whether an address is in the stage's code.
func (s *Stage) Holds(pc symbols.Addr) bool {
	return pc >= s.Base && pc < s.Base+symbols.Addr(s.Size)
}

// Entry is where a thread that arrives at an address of the patched window
// must go on: at the detour of a probe there, or at the copy.
func (p *Patch) Entry(a symbols.Addr) (symbols.Addr, bool) {
	for _, s := range p.Stages {
		if s.At == a {
			return s.Base, true
		}
		if a > s.At && a < s.At+symbols.Addr(len(s.Code)) {
			if off, ok := s.Moved().Copy(uint64(a)); ok {
				return s.CopyAt + symbols.Addr(off), true
			}
		}
	}
	return 0, false
}
