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
	Wants  []Request  // the requests that it serves, each once, which must not be changed; an island's are its patch's
	Stages []Stage    // they don't move: there are pointers to them
	Island *Patch     // the instructions that give way to it, armed before it; nil: none
	text   *textPiece // the piece that has the stages' code; nil once that is written to the target
}

// newPatch makes a patch with so many stages, of one piece of memory if there are few: there are hundreds of
// thousands.
func newPatch(stages int) *Patch {
	switch stages {
	case 1:
		x := &struct {
			Patch
			stages [1]Stage
		}{}
		x.Stages = x.stages[:]
		return &x.Patch
	case 2:
		x := &struct {
			Patch
			stages [2]Stage
		}{}
		x.Stages = x.stages[:]
		return &x.Patch
	}
	return &Patch{Stages: make([]Stage, stages)}
}

// Stage is one piece of a patch's detour: the probes of one address, then the
// displaced instructions up to the next stage or the jump back. There are hundreds of thousands of
// them, so they refer to what their patch has, and sizes are as small as they can be.
type Stage struct {
	Base  symbols.Addr
	At    symbols.Addr // the first displaced instruction
	kept  detour.Kept  // of the code of its probes; zero for return trampolines, which are in rare
	patch *Patch       // whose detour it belongs to; for an island the patch that it makes room for
	exits *ExitWay     // Way, if that is by exits
	rare  *rareStage   // nil: all of it is zero
	// The code is at textAt in its patch's piece. The copies are copyAt bytes behind Base.
	textAt, copyAt uint32
	Size           uint32 // of the code
	copied         uint16 // size of the copies
	displaced      uint8  // size of the displaced instructions; 0: it has no copies
	goesOn, leaves bool   // the next stage follows on the copies; it serves an exit
	probed         bool   // it has code of probes
	// The detour serves patch.Wants[first:], as many as served says. buildLed refuses more than fit.
	first, served uint16
}

// rareStage is what few stages have.
type rareStage struct {
	trampolines *detour.Return
	way         *TrampolineWay
	island      *Patch            // that the stage is of
	lead        map[uint64]uint64 // insn.Options.Lead of its copies
}

func (s *Stage) rarely() rareStage {
	if s.rare == nil {
		return rareStage{}
	}
	return *s.rare
}

// Owns yields the bytes that the patch and its island write or guard.
func (p *Patch) Owns() iter.Seq[plan.Range] { return p.Plan.Owns() }

// Probed says that the stage has code of probes. Otherwise it has only copies.
func (s *Stage) Probed() bool { return s.probed }

// Detour is the code of the stage's probes, without its bytes. It is zero if the stage isn't Probed.
func (s *Stage) Detour() detour.Detour {
	switch {
	case !s.probed:
		return detour.Detour{}
	case s.Trampolines() != nil:
		return s.Trampolines().Detour
	}
	return s.kept.Detour(uint64(s.Base), s.Size, s.copyAt)
}

// keep notes what is kept of the code of the stage's probes, which serves so many requests.
func (s *Stage) keep(d *detour.Detour, served int) {
	s.kept, s.served, s.probed = d.Kept, uint16(served), true
}

// copies notes the copies of the stage's displaced instructions, which are code.
func (s *Stage) copies(code []byte, m insn.Moved, opts insn.Options) {
	s.displaced, s.copied, s.goesOn = uint8(len(code)), uint16(len(m.Code)), opts.NoJumpBack
}

// Wants are the requests that the detour serves.
func (s *Stage) Wants() []Request {
	if s.served == 0 {
		return nil
	}
	return s.patch.Wants[s.first:][:s.served:s.served]
}

// OwnHits is how many of Wants are exits that are hits by themselves. They come first.
func (s *Stage) OwnHits() int { return ownHits(s.Wants()) }

// Way is the way of the return probe whose entry or exit this code serves; nil: it serves none.
func (s *Stage) Way() Way {
	if s.exits != nil {
		return s.exits
	}
	if w := s.rarely().way; w != nil {
		return w
	}
	return nil
}

// Exits is the stage's way if it is by exits, else nil.
func (s *Stage) Exits() *ExitWay { return s.exits }

// Takes is the function at whose entry the stage is, if it tells calls that arrive there from others, whatever code jumps
// to it. ok is false for other stages.
func (s *Stage) Takes() (at symbols.Addr, ok bool) {
	switch {
	case s.exits == nil:
		return 0, false
	case !s.leaves:
		return s.exits.Probe.Where.Addr, !s.exits.StartsOver
	}
	for _, w := range s.Wants() {
		if w.Passing == detour.Arrives && w.Within(*w.P.Where) {
			return w.P.Where.Addr, true
		}
	}
	return 0, false
}

// Leaves says that the stage serves an exit of a return probe by exits.
func (s *Stage) Leaves() bool { return s.leaves }

// Trampolines are the return trampolines in the code; nil: there are none.
func (s *Stage) Trampolines() *detour.Return { return s.rarely().trampolines }

// JumpsOn is how to compute where the stage's jump leads, if the stage serves a jump through a register or
// memory; else nil.
func (s *Stage) JumpsOn() *fetch.Chain {
	if ws := s.Wants(); s.leaves && len(ws) > 0 {
		return ws[0].Open()
	}
	return nil
}

// Code has the displaced instructions from At on, whose copies are at CopyAt.
func (s *Stage) Code() []byte {
	if s.displaced == 0 {
		return nil
	}
	p := s.patch
	if island := s.rarely().island; island != nil {
		p = island
	}
	return p.Plan.Displaced()[uint64(s.At)-p.Plan.At:][:s.displaced:s.displaced]
}

// CopyAt is where the copies of the displaced instructions begin.
func (s *Stage) CopyAt() symbols.Addr { return s.Base + symbols.Addr(s.copyAt) }

// Copied is the size of the copies.
func (s *Stage) Copied() int { return int(s.copied) }

// Onward is the program's address for a thread at the jump that leads from the copies to the
// next stage; 0 if there is no such jump: a stage that has only copies runs on into the next.
func (s *Stage) Onward() symbols.Addr {
	if !s.goesOn || !s.probed {
		return 0
	}
	return s.At + symbols.Addr(s.displaced)
}

// RunsOn is the program's address for a thread behind the copies if these run on into the next stage without a jump;
// else 0.
func (s *Stage) RunsOn() symbols.Addr {
	if !s.goesOn || s.probed {
		return 0
	}
	return s.At + symbols.Addr(s.displaced)
}

// Moved are the stage's copies. They are made anew at each call, to save memory: there are many stages and
// few calls.
func (s *Stage) Moved() insn.Moved { return s.MovedBy(new(insn.Relocator)) }

// MovedBy is Moved for many stages, one after another. What it returns is valid until the next use of r.
func (s *Stage) MovedBy(r *insn.Relocator) insn.Moved {
	code := s.Code()
	if len(code) == 0 {
		return insn.Moved{}
	}
	m, err := r.Window(code, uint64(s.At), uint64(s.CopyAt()), insn.Options{NoJumpBack: s.goesOn, Lead: s.rarely().lead})
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
	for i := range p.Stages {
		s := &p.Stages[i]
		if s.At == a {
			return s.Base, true
		}
		if a > s.At && a < s.At+symbols.Addr(s.displaced) {
			if off := a - s.At; insn.SameOffset(s.Code(), int(off)) {
				return s.CopyAt() + off, true
			}
			if off, ok := s.Moved().Copy(uint64(a)); ok {
				return s.CopyAt() + symbols.Addr(off), true
			}
		}
	}
	return 0, false
}
