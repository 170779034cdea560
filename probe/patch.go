package probe

import (
	"iter"
	"sort"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// patch is an optimized probe, or several whose jumps would overlap: a jump in
// the text, and the detours it leads to.
//
// States: built (its detours are written, where no thread is), armed (the jump
// is in the text), retired (the text is restored; its detours stay until no
// thread can be in them).
type patch struct {
	plan    *plan.Patch
	before  []plan.Write   // what its writes replace, the original bytes
	wants   []patchRequest // what it serves, each once
	stages  []*stage
	entries []int // in the journal, one for each write
	armed   bool
	island  *patch // instructions that were moved out of the way; armed first
}

// stage is one piece of a patch's detour: the probes of one address, then the
// displaced instructions up to the next stage or the jump back.
type stage struct {
	base   symbols.Addr
	size   int
	at     symbols.Addr   // the first displaced instruction
	detour *detour.Detour // nil: only copies
	wants  []patchRequest // what the detour serves
	// way is the return probe whose code this is; nil: that of none. leaves says that it
	// is an exit's.
	way    returnWay
	leaves bool
	// trampolines are the return trampolines in the code; nil: there are none.
	trampolines *detour.Return
	// code are the displaced instructions from at on, whose copies are at copyAt; the copies
	// take copied bytes, and end without a jump back where open is set.
	code   []byte
	copyAt symbols.Addr
	copied int
	open   bool
	// onward is where a thread is in the program that stands at the jump behind the
	// copies, to the next stage; 0 if there is none.
	onward symbols.Addr
	text   []byte // until it is written
	sketch *detour.Sketch
}

// exits is the return probe of exits whose code the stage is; nil: that of none.
func (s *stage) exits() *exitProbe {
	x, _ := s.way.(*exitProbe)
	return x
}

// moved are the stage's copies: made anew, as they are asked for seldom and stages are
// many.
func (s *stage) moved() insn.Moved {
	if len(s.code) == 0 {
		return insn.Moved{}
	}
	m, err := insn.RelocateWindow(s.code, uint64(s.at), uint64(s.copyAt), insn.Options{NoJumpBack: s.open})
	if err != nil {
		return insn.Moved{} // they were made once
	}
	return m
}

func (s *stage) holds(pc symbols.Addr) bool {
	return pc >= s.base && pc < s.base+symbols.Addr(s.size)
}

// leavesAt is where the detours of the exits at an address start.
func (p *patch) leavesAt(a symbols.Addr) symbols.Addr {
	for _, s := range p.stages {
		if s.leaves && s.at == a {
			return s.base
		}
	}
	return 0
}

// covers reports whether any of the n bytes at a belongs to the patch.
func (p *patch) covers(a symbols.Addr, n int) bool {
	return p.plan.Owned(uint64(a), uint64(a)+uint64(n))
}

// probes lists the probes that it serves, each once for every place of it.
func (p *patch) probes() []*placed {
	out := make([]*placed, len(p.wants))
	for i, w := range p.wants {
		out[i] = w.p
	}
	return out
}

// entry is where a thread that arrives at an address of the patched window
// must go on: at the detour of a probe there, or at the copy.
func (p *patch) entry(a symbols.Addr) (symbols.Addr, bool) {
	for _, s := range p.stages {
		if s.at == a {
			return s.base, true
		}
		if a > s.at && a < s.at+symbols.Addr(len(s.code)) {
			if off, ok := s.moved().Copy(uint64(a)); ok {
				return s.copyAt + symbols.Addr(off), true
			}
		}
	}
	return 0, false
}

// allStages are the stages of the patch and of its island.
func (p *patch) allStages() iter.Seq[*stage] {
	return func(yield func(*stage) bool) {
		for q := p; q != nil; q = q.island {
			for _, s := range q.stages {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// guards gives the guards of the patch and of its island, and where a thread that
// arrives there goes on.
func (p *patch) guards() iter.Seq2[plan.Guard, symbols.Addr] {
	return func(yield func(plan.Guard, symbols.Addr) bool) {
		for q := p; q != nil; q = q.island {
			for _, g := range q.plan.Guards {
				if to, ok := q.entry(symbols.Addr(g.At)); ok && !yield(g, to) {
					return
				}
			}
		}
	}
}

// patches finds patches and stages by address.
type patches struct {
	list   []*patch
	pages  pageIndex
	stages []*stage // by base
	owner  map[*stage]*patch
	guards map[symbols.Addr]symbols.Addr // address of a guard → where to go on
	noRoom map[symbols.Addr]*stage       // address of the int3 for stacks without room
	faults map[symbols.Addr]symbols.Addr // load that may fault → where to go on
	asks   map[symbols.Addr]detour.Ask
}

func newPatches() *patches {
	return &patches{
		pages: pageIndex{},
		owner: map[*stage]*patch{}, noRoom: map[symbols.Addr]*stage{}, guards: map[symbols.Addr]symbols.Addr{}, faults: map[symbols.Addr]symbols.Addr{},
		asks: map[symbols.Addr]detour.Ask{},
	}
}

func (ps *patches) add(list []*patch) {
	for _, p := range list {
		ps.list = append(ps.list, p)
		ps.pages.add(p)
		for q := p; q != nil; q = q.island {
			for _, s := range q.stages {
				ps.stages = append(ps.stages, s)
				ps.owner[s] = q
				if s.detour == nil {
					continue
				}
				if a := s.detour.NoRoom; a != 0 {
					ps.noRoom[symbols.Addr(a)] = s
				}
				for _, f := range s.detour.Faults {
					ps.faults[symbols.Addr(f.At)] = symbols.Addr(f.To)
				}
				for _, a := range s.detour.Asks {
					ps.asks[symbols.Addr(a.At)] = a
				}
			}
		}
		for g, to := range p.guards() {
			ps.guards[symbols.Addr(g.At)] = to
		}
	}
	sort.Slice(ps.stages, func(i, j int) bool { return ps.stages[i].base < ps.stages[j].base })
}

// stageAt finds the stage that holds pc.
func (ps *patches) stageAt(pc symbols.Addr) *stage {
	i := sort.Search(len(ps.stages), func(i int) bool { return ps.stages[i].base > pc })
	if i > 0 && ps.stages[i-1].holds(pc) {
		return ps.stages[i-1]
	}
	return nil
}

// longJump finds the armed patch whose short jump leads to the jump at pc.
func (ps *patches) longJump(pc symbols.Addr) *patch {
	for _, p := range ps.pages.near(uint64(pc), uint64(pc)+1) {
		if p.armed && p.plan.LongJump() == uint64(pc) {
			return p
		}
	}
	return nil
}

// covering finds an armed patch to which any of n bytes at a belongs.
func (ps *patches) covering(a symbols.Addr, n int) *patch {
	for _, p := range ps.pages.near(uint64(a), uint64(a)+uint64(n)) {
		if p.armed && p.covers(a, n) {
			return p
		}
	}
	return nil
}

// inCopy gives the registers of the program for a thread in the displaced
// instructions of a stage: before or behind the one it is at.
func (s *stage) inCopy(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, insn.State, bool) {
	off := int(symbols.Addr(regs.Rip) - s.copyAt)
	if off == s.copied && s.onward != 0 {
		out := *regs
		out.Rip = uint64(s.onward)
		return &out, insn.After, true
	}
	if symbols.Addr(regs.Rip) < s.copyAt || off >= s.copied {
		return nil, 0, false
	}
	pt := s.moved().Where(off)
	out, ok := area.AtPoint(pt, regs, mem)
	return out, pt.State, ok
}

// leave gives the registers that a thread in the stage has in the program,
// its hit taken or not: where the jump was, at or behind a displaced
// instruction.
func (s *stage) leave(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	if out, _, ok := s.inCopy(regs, mem); ok {
		return out, true
	}
	if s.way != nil {
		return s.way.leave(s, regs, mem)
	}
	return s.leaveDetour(regs, mem)
}

// leaveDetour is leave for the code of probes that follow no calls, or follow them by
// exits.
func (s *stage) leaveDetour(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	out := *regs
	out.Rip = uint64(s.at)
	if s.detour == nil {
		return &out, true
	}
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	ok, err := s.detour.Unwind(&r, mem)
	if err != nil {
		return nil, false
	}
	if !ok {
		return &out, true
	}
	if x := s.injects(); x != nil {
		if skipped, err := s.detour.Skips(regs.Rip, *x.Result, &r, mem); err != nil {
			return nil, false
		} else if skipped {
			fromFetch(&r, &out)
			out.Rip = r.IP
			return &out, true
		}
	}
	fromFetch(&r, &out)
	out.Rip = uint64(s.at)
	return &out, true
}

// injects is what the stage does to calls; nil is nothing.
func (s *stage) injects() *injection {
	for _, w := range s.wants {
		if x := w.p.target.s.inject; x != nil && x.Result != nil {
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
