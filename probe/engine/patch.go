package engine

import (
	"iter"
	"sort"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Patch is an optimized probe, or several whose jumps would overlap: a jump in
// the text, and the detours it leads to.
//
// States: built (its detours are written, where no thread is), armed (the jump
// is in the text), retired (the text is restored; its detours stay until no
// thread can be in them).
type Patch struct {
	*planner.Patch
	Stages  []*stage
	entries []int // in the journal, one for each write
	Armed   bool
	island  *Patch // instructions that were moved out of the way; armed first
}

// stage is one piece of a patch's detour, in the target.
type stage struct{ *planner.Stage }

// newPatch makes a jump of a plan one that can be armed.
func newPatch(p *planner.Patch) *Patch {
	out := &Patch{Patch: p, Stages: make([]*stage, len(p.Stages))}
	all := make([]stage, len(p.Stages))
	for i, st := range p.Stages {
		all[i].Stage = st
		out.Stages[i] = &all[i]
	}
	if p.Island != nil {
		out.island = newPatch(p.Island)
	}
	return out
}

// allStages are the stages of the patch and of its island.
func (p *Patch) allStages() iter.Seq[*stage] {
	return func(yield func(*stage) bool) {
		for q := p; q != nil; q = q.island {
			for _, s := range q.Stages {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// leavesAt is where the detours of the exits at an address start.
func (p *Patch) leavesAt(a symbols.Addr) symbols.Addr {
	for s := range p.allStages() {
		if s.Leaves && s.At == a {
			return s.Base
		}
	}
	return 0
}

// covers reports whether any of the n bytes at a belongs to the patch.
func (p *Patch) covers(a symbols.Addr, n int) bool {
	return p.Plan.Owned(uint64(a), uint64(a)+uint64(n))
}

// Probes lists the probes that it serves, each once for every place of it.
func (p *Patch) Probes() []*Placed {
	out := make([]*Placed, len(p.Wants))
	for i, w := range p.Wants {
		out[i] = PlacedOf(w)
	}
	return out
}

// Guards gives the guards of the patch and of its island, and where a thread that
// arrives there goes on.
func (p *Patch) Guards() iter.Seq2[plan.Guard, symbols.Addr] {
	return func(yield func(plan.Guard, symbols.Addr) bool) {
		for q := p; q != nil; q = q.island {
			for _, g := range q.Plan.Guards {
				if to, ok := q.Entry(symbols.Addr(g.At)); ok && !yield(g, to) {
					return
				}
			}
		}
	}
}

// patches finds patches and stages by address.
type patches struct {
	List   []*Patch
	pages  planner.PageIndex[*Patch]
	Stages []*stage // by base
	owner  map[*stage]*Patch
	Guards map[symbols.Addr]symbols.Addr // address of a guard → where to go on
	noRoom map[symbols.Addr]*stage       // address of the int3 for stacks without room
	faults map[symbols.Addr]symbols.Addr // load that may fault → where to go on
	asks   map[symbols.Addr]detour.Ask
}

func newPatches() *patches {
	return &patches{
		pages: planner.PageIndex[*Patch]{},
		owner: map[*stage]*Patch{}, noRoom: map[symbols.Addr]*stage{}, Guards: map[symbols.Addr]symbols.Addr{}, faults: map[symbols.Addr]symbols.Addr{},
		asks: map[symbols.Addr]detour.Ask{},
	}
}

func (ps *patches) add(list []*Patch) {
	for _, p := range list {
		ps.List = append(ps.List, p)
		ps.pages.Add(p)
		for q := p; q != nil; q = q.island {
			for _, s := range q.Stages {
				ps.Stages = append(ps.Stages, s)
				ps.owner[s] = p
				if s.Detour == nil {
					continue
				}
				if a := s.Detour.NoRoom; a != 0 {
					ps.noRoom[symbols.Addr(a)] = s
				}
				for _, f := range s.Detour.Faults {
					ps.faults[symbols.Addr(f.At)] = symbols.Addr(f.To)
				}
				for _, a := range s.Detour.Asks {
					ps.asks[symbols.Addr(a.At)] = a
				}
			}
		}
		for g, to := range p.Guards() {
			ps.Guards[symbols.Addr(g.At)] = to
		}
	}
	sort.Slice(ps.Stages, func(i, j int) bool { return ps.Stages[i].Base < ps.Stages[j].Base })
}

// StageAt finds the stage that holds pc.
func (ps *patches) StageAt(pc symbols.Addr) *stage {
	i := sort.Search(len(ps.Stages), func(i int) bool { return ps.Stages[i].Base > pc })
	if i > 0 && ps.Stages[i-1].Holds(pc) {
		return ps.Stages[i-1]
	}
	return nil
}

// LongJump finds the armed patch whose short jump leads to the jump at pc.
func (ps *patches) LongJump(pc symbols.Addr) *Patch {
	for _, p := range ps.pages.Near(uint64(pc), uint64(pc)+1) {
		if p.Armed && p.Plan.LongJump() == uint64(pc) {
			return p
		}
	}
	return nil
}

// Covering finds an armed patch to which any of n bytes at a belongs.
func (ps *patches) Covering(a symbols.Addr, n int) *Patch {
	for _, p := range ps.pages.Near(uint64(a), uint64(a)+uint64(n)) {
		if p.Armed && p.covers(a, n) {
			return p
		}
	}
	return nil
}

// InCopy gives the registers of the program for a thread in the displaced
// instructions of a stage: before or behind the one it is at.
func (s *stage) InCopy(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, insn.State, bool) {
	off := int(symbols.Addr(regs.Rip) - s.CopyAt)
	if off == s.Copied && s.Onward != 0 {
		out := *regs
		out.Rip = uint64(s.Onward)
		return &out, insn.After, true
	}
	if symbols.Addr(regs.Rip) < s.CopyAt || off >= s.Copied {
		return nil, 0, false
	}
	pt := s.Moved().Where(off)
	out, ok := area.AtPoint(pt, regs, mem)
	return out, pt.State, ok
}

// Leave gives the registers that a thread in the stage has in the program,
// its hit taken or not: where the jump was, at or behind a displaced
// instruction.
func (s *stage) Leave(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	if out, _, ok := s.InCopy(regs, mem); ok {
		return out, true
	}
	if s.Way != nil {
		return runningWay(s.Way).leave(s, regs, mem)
	}
	return s.leaveDetour(regs, mem)
}

// leaveDetour is leave for the code of probes that follow no calls, or follow them by
// exits.
func (s *stage) leaveDetour(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	out := *regs
	out.Rip = uint64(s.At)
	if s.Detour == nil {
		return &out, true
	}
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	ok, err := s.Detour.Unwind(&r, mem)
	if err != nil {
		return nil, false
	}
	if !ok {
		return &out, true
	}
	if x := s.injects(); x != nil {
		if skipped, err := s.Detour.Skips(regs.Rip, *x.Result, &r, mem); err != nil {
			return nil, false
		} else if skipped {
			fromFetch(&r, &out)
			out.Rip = r.IP
			return &out, true
		}
	}
	fromFetch(&r, &out)
	out.Rip = uint64(s.At)
	return &out, true
}

// injects is what the stage does to calls; nil is nothing.
func (s *stage) injects() *Injecting {
	for _, w := range s.Wants {
		if x := PlacedOf(w).target.Engine.Inject; x != nil && x.Result != nil {
			return x
		}
	}
	return nil
}

func fromFetch(r *fetch.Regs, out *unix.PtraceRegs) {
	out.Rax, out.Rcx, out.Rdx, out.Rbx = r.GPR[fetch.AX], r.GPR[fetch.CX], r.GPR[fetch.DX], r.GPR[fetch.BX]
	out.Rsp, out.Rbp, out.Rsi, out.Rdi = r.GPR[fetch.SP], r.GPR[fetch.BP], r.GPR[fetch.SI], r.GPR[fetch.DI]
	out.R8, out.R9, out.R10, out.R11 = r.GPR[fetch.R8], r.GPR[fetch.R9], r.GPR[fetch.R10], r.GPR[fetch.R11]
	out.R12, out.R13, out.R14, out.R15 = r.GPR[fetch.R12], r.GPR[fetch.R13], r.GPR[fetch.R14], r.GPR[fetch.R15]
	out.Eflags = r.Flags
}
