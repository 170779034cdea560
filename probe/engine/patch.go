package engine

import (
	"cmp"
	"iter"
	"slices"
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

// Patch is a jump in the text with the detours that it leads to. It serves one optimized probe, or
// several whose jumps would overlap. Its states, in order:
//
//	built    its detours are written to memory where no thread is
//	armed    the jump is in the text
//	retired  the text has its original bytes; the detours stay until no thread can be in them
type Patch struct {
	*planner.Patch
	island  *Patch   // the instructions that give way to it, armed before it; nil: none
	others  *[]int32 // numbers of its journal entries after the first; nil: none
	entry   int32    // number of the first one
	entered bool     // it has journal entries: one for each write
	Armed   bool     // the jump is in the text, or couldn't be taken out of it
}

// enter adds a journal entry to the patch's.
func (p *Patch) enter(number int) {
	switch {
	case !p.entered:
		p.entry, p.entered = int32(number), true
	case p.others == nil:
		p.others = &[]int32{int32(number)}
	default:
		*p.others = append(*p.others, int32(number))
	}
}

// entries yields the numbers of the patch's journal entries, in the order of its writes.
func (p *Patch) entries(yield func(int) bool) {
	if !p.entered || !yield(int(p.entry)) || p.others == nil {
		return
	}
	for _, n := range *p.others {
		if !yield(int(n)) {
			return
		}
	}
}

// written yields the writes of the patch that have journal entries, without those of its island.
func (p *Patch) written(yield func(plan.Replacement) bool) {
	n := 0
	for range p.entries {
		n++
	}
	for i, w := range p.Plan.Writes() {
		if i == n || !yield(w) {
			return
		}
	}
}

// stage is one piece of a patch's detour, in the target. The zero value is none.
type stage struct {
	*planner.Stage
	patch *Patch // whose detour it belongs to; for an island the patch that it makes room for
}

// None says that there is no stage.
func (s stage) None() bool { return s.Stage == nil }

// copies reports whether the stage's displaced instructions are at pc.
func (s stage) copies(pc symbols.Addr) bool {
	return pc >= s.CopyAt() && pc < s.CopyAt()+symbols.Addr(s.Copied())
}

// patchesAtOnce is how many Patches of a change are made in one piece of memory, which is in use as long as one
// of them is.
const patchesAtOnce = 16

// newPatchesOf makes Patches of planned ones.
func newPatchesOf(list []*planner.Patch) []*Patch {
	var room []Patch
	out := make([]*Patch, len(list))
	for i, p := range list {
		for at := &out[i]; p != nil; p = p.Island {
			if len(room) == 0 {
				room = make([]Patch, min(patchesAtOnce, len(list)-i))
			}
			room[0].Patch = p
			*at, room = &room[0], room[1:]
			at = &(*at).island
		}
	}
	return out
}

// allStages are the stages of the patch and of its island.
func (p *Patch) allStages() iter.Seq[stage] {
	return func(yield func(stage) bool) {
		for q := p; q != nil; q = q.island {
			for i := range q.Stages {
				if !yield(stage{&q.Stages[i], p}) {
					return
				}
			}
		}
	}
}

// leavesAt is the address of the detour for the exit at a; 0 if the patch has none.
func (p *Patch) leavesAt(a symbols.Addr) symbols.Addr {
	for s := range p.allStages() {
		if s.Leaves() && s.At == a {
			return s.Base
		}
	}
	return 0
}

// covers reports whether any of the n bytes at a belongs to the patch.
func (p *Patch) covers(a symbols.Addr, n int) bool {
	return p.Plan.Owned(uint64(a), uint64(a)+uint64(n))
}

// Probes lists the probes that the patch serves: one for each of its requests, so a probe with
// several places in the patch is there several times.
func (p *Patch) Probes() []*Placed {
	out := make([]*Placed, len(p.Wants))
	for i, w := range p.Wants {
		out[i] = PlacedOf(w)
	}
	return out
}

// Guards yields the guards of the patch and of its islands, each with the address where a thread
// that traps there continues.
func (p *Patch) Guards() iter.Seq2[plan.Guard, symbols.Addr] {
	return func(yield func(plan.Guard, symbols.Addr) bool) {
		for q := p; q != nil; q = q.island {
			for g := range q.Plan.Guards() {
				if to, ok := q.Entry(symbols.Addr(g.At)); ok && !yield(g, to) {
					return
				}
			}
		}
	}
}

// patches finds patches and stages by address. It holds retired patches, too, until their code is
// freed.
type patches struct {
	List   []*Patch
	pages  planner.PageIndex[*Patch]
	Stages []stage      // sorted by base
	taken  []plan.Range // memory that they have, in order, adjacent ranges joined
	// outlive are the stages whose code active calls return by (planner.Way.Outlives).
	outlive []stage
	Guards  map[symbols.Addr]symbols.Addr // a guard's address → where the thread continues
	noRoom  map[symbols.Addr]stage        // address of the int3 that a detour executes if the stack has no room
	faults  map[symbols.Addr]symbols.Addr // address of a load that may fault → where the thread continues
	asks    map[symbols.Addr]detour.Ask   // by address of the instruction that may fault
}

func newPatches() *patches {
	return &patches{
		pages:  planner.PageIndex[*Patch]{},
		noRoom: map[symbols.Addr]stage{}, Guards: map[symbols.Addr]symbols.Addr{}, faults: map[symbols.Addr]symbols.Addr{},
		asks: map[symbols.Addr]detour.Ask{},
	}
}

func (ps *patches) add(list []*Patch) {
	n := 0
	for _, p := range list {
		for q := p; q != nil; q = q.island {
			n += len(q.Stages)
		}
	}
	fresh := make([]stage, 0, n)
	ps.List = slices.Grow(ps.List, len(list))
	for _, p := range list {
		ps.List = append(ps.List, p)
		ps.pages.Add(p)
		for s := range p.allStages() {
			fresh = append(fresh, s)
			if way := s.Way(); way != nil && way.Outlives() {
				ps.outlive = append(ps.outlive, s)
			}
			if !s.Probed() {
				continue
			}
			d := s.Detour()
			if a := d.NoRoom(); a != 0 {
				ps.noRoom[symbols.Addr(a)] = s
			}
			for _, f := range d.Faults() {
				ps.faults[symbols.Addr(f.At)] = symbols.Addr(f.To)
			}
			for _, a := range d.Asks() {
				ps.asks[symbols.Addr(a.At)] = a
			}
		}
		for g, to := range p.Guards() {
			ps.Guards[symbols.Addr(g.At)] = to
		}
	}
	slices.SortFunc(fresh, byBase)
	ps.Stages = merge(ps.Stages, fresh)
	ps.taken = join(ps.taken, memoryOf(fresh))
}

func byBase(a, b stage) int { return cmp.Compare(a.Base, b.Base) }

// merge adds sorted stages to sorted stages. To add a few to many takes little time.
func merge(all, fresh []stage) []stage {
	n := len(all)
	all = append(all, fresh...)
	for end := len(all); len(fresh) > 0; {
		last := fresh[len(fresh)-1]
		i, _ := slices.BinarySearchFunc(all[:n], last, byBase)
		end -= copy(all[end-(n-i):end], all[i:n]) + 1
		all[end] = last
		n, fresh = i, fresh[:len(fresh)-1]
	}
	return all
}

// StageAt finds the stage that holds pc.
func (ps *patches) StageAt(pc symbols.Addr) stage {
	if s := ps.lastBelow(pc + 1); !s.None() && s.Holds(pc) {
		return s
	}
	return stage{}
}

// lastBelow finds the last stage that begins below an address, if there is one.
func (ps *patches) lastBelow(a symbols.Addr) stage {
	i := sort.Search(len(ps.Stages), func(i int) bool { return ps.Stages[i].Base >= a })
	if i == 0 {
		return stage{}
	}
	return ps.Stages[i-1]
}

// LongJump finds the armed patch whose short jump leads to the long jump at pc; nil if there is
// none.
func (ps *patches) LongJump(pc symbols.Addr) *Patch {
	for _, p := range ps.pages.Near(uint64(pc), uint64(pc)+1) {
		for q := p; q != nil && p.Armed; q = q.island {
			if q.Plan.LongJump() == uint64(pc) {
				return q
			}
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

// InCopy returns the program's registers for a thread in the displaced instructions of a stage. The
// state says whether the instruction that they are at has run. ok is false if the thread isn't in
// displaced instructions.
func (s stage) InCopy(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, insn.State, bool) {
	off := int(symbols.Addr(regs.Rip) - s.CopyAt())
	if off == s.Copied() && s.Onward() != 0 {
		out := *regs
		out.Rip = uint64(s.Onward())
		return &out, insn.After, true
	}
	if symbols.Addr(regs.Rip) < s.CopyAt() || off >= s.Copied() {
		return nil, 0, false
	}
	pt := s.Moved().Where(off)
	out, ok := area.AtPoint(pt, regs, mem)
	return out, pt.State, ok
}

// behindCopies returns the program's registers for a thread that has just run the last copy of a stage, which runs on
// into the next: it stands at the start of that one. ok is false for a thread anywhere else.
func (ps *patches) behindCopies(regs *unix.PtraceRegs) (*unix.PtraceRegs, bool) {
	pc := symbols.Addr(regs.Rip)
	s := ps.lastBelow(pc)
	if s.None() || s.RunsOn() == 0 || pc != s.Base+symbols.Addr(s.Size) {
		return nil, false
	}
	out := *regs
	out.Rip = uint64(s.RunsOn())
	return &out, true
}

// Leave returns the program's registers for a thread in the stage: at the jump's place, or at or
// behind a displaced instruction. The thread's hit may be taken or not. ok is false if the
// registers can't be found out.
func (s stage) Leave(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	if out, _, ok := s.InCopy(regs, mem); ok {
		return out, true
	}
	if way := s.Way(); way != nil {
		return runningWay(way).leave(s, regs, mem)
	}
	return s.leaveDetour(regs, mem)
}

// leaveDetour is Leave for a thread in a stage without return trampolines, outside the displaced
// instructions.
func (s stage) leaveDetour(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	out := *regs
	out.Rip = uint64(s.At)
	if !s.Probed() {
		return &out, true
	}
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	d := s.Detour()
	ok, err := d.Unwind(&r, mem)
	if err != nil {
		return nil, false
	}
	if !ok {
		return &out, true
	}
	if x := s.injects(); x != nil {
		if skipped, err := d.Skips(regs.Rip, *x.Result, &r, mem); err != nil {
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

// injects is how the stage changes the results of calls; nil if it doesn't.
func (s stage) injects() *Injecting {
	for _, w := range s.Wants() {
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
