package planner

import (
	"iter"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Patch is a planned jump: what it writes into the text, and the detours that it leads to. It serves one
// probe, or several whose jumps would overlap.
type Patch struct {
	Plan   plan.Packed
	Wants  []Request // the requests that it serves, each once
	Stages []*Stage
	Island *Patch // the instructions that give way to it, armed before it; nil: none
}

// Stage is one piece of a patch's detour: the probes of one address, then the
// displaced instructions up to the next stage or the jump back.
type Stage struct {
	Base   symbols.Addr
	Size   int
	At     symbols.Addr   // the first displaced instruction
	Detour *detour.Detour // nil: only copies
	Wants  []Request      // what the detour serves
	// Way is the way of the return probe whose entry or exit this code serves; nil: it serves
	// none. Leaves says that it is an exit.
	Way    Way
	Leaves bool
	// Trampolines are the return trampolines in the code; nil: there are none.
	Trampolines *detour.Return
	// Code has the displaced instructions from At on. Their copies, made by opts, are at CopyAt
	// and take Copied bytes.
	Code   []byte
	CopyAt symbols.Addr
	Copied int
	opts   insn.Options
	// Onward is the program's address for a thread at the jump that leads from the copies to the
	// next stage; 0 if there is no such jump.
	Onward symbols.Addr
	Text   []byte // the code; nil once it is written to the target
	sketch *detour.Sketch
}

// Owns yields the bytes that the patch and its island write or guard.
func (p *Patch) Owns() iter.Seq[plan.Range] { return p.Plan.Owns() }

// Exits is the stage's way if it is by exits, else nil.
func (s *Stage) Exits() *ExitWay {
	x, _ := s.Way.(*ExitWay)
	return x
}

// JumpsOn is how to compute where the stage's jump leads, if the stage serves a jump through a register or
// memory; else nil.
func (s *Stage) JumpsOn() *fetch.Chain {
	if !s.Leaves || len(s.Wants) == 0 {
		return nil
	}
	return s.Wants[0].Open()
}

// Moved are the stage's copies. They are made anew at each call, to save memory: there are many stages and
// few calls.
func (s *Stage) Moved() insn.Moved {
	if len(s.Code) == 0 {
		return insn.Moved{}
	}
	m, err := insn.RelocateWindow(s.Code, uint64(s.At), uint64(s.CopyAt), s.opts)
	if err != nil {
		return insn.Moved{} // can't happen: making them has succeeded before
	}
	return m
}

// Holds reports whether an address is in the stage's code.
func (s *Stage) Holds(pc symbols.Addr) bool {
	return pc >= s.Base && pc < s.Base+symbols.Addr(s.Size)
}

// Entry is where a thread at an address under the patch must continue: at the detour of a probe that is
// there, or at the instruction's copy. ok is false if no instruction began at that address.
func (p *Patch) Entry(a symbols.Addr) (symbols.Addr, bool) {
	for _, s := range p.Stages {
		if s.At == a {
			return s.Base, true
		}
		if a > s.At && a < s.At+symbols.Addr(len(s.Code)) {
			if off := a - s.At; insn.SameOffset(s.Code, int(off)) {
				return s.CopyAt + off, true
			}
			if off, ok := s.Moved().Copy(uint64(a)); ok {
				return s.CopyAt + symbols.Addr(off), true
			}
		}
	}
	return 0, false
}
