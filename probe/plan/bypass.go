package plan

import (
	"math"
	"slices"

	"kprobe/probe/insn"
)

// maxBypassed is how many branches to one instruction may be moved away.
const maxBypassed = 16

// bypass is for an instruction without room for a jump, to which branches lead: mostly a return
// of one byte, right behind which the next function starts.
//
//	75 11             jne 1f      e9 x y z w   an island: its copy of the jne leads to the
//	be 09 00 00 00    mov ...                  detour of the return
//	e9 x y z w        jmp f
//	c3                1: ret      cc           a guard
//
// All of the branches give way, into islands. If control also falls into the instruction, it
// becomes the end of a window over those before it, or what is before it is under an earlier
// patch already, which then leads to the detour, too. An earlier patch with one of the branches
// becomes an island.
//
// What still comes to the instruction (a jump whose target was not found, a signal frame) meets
// the guard and continues at the detour. So it must be known what leads there: no jump table
// names it, no function has jumps to unknown places, and nothing else leads into it.
func (t *try) bypass() *Patch {
	f := t.f
	here := f.insts[t.k]
	branches, why := f.branchesTo(t.k)
	if why != "" {
		return t.fail("%s", why)
	}
	used := len(*t.used)
	p := t.guardAt()
	if p == nil {
		return nil
	}
	*t.used = append(*t.used, pad{int(p.At - f.start), here.end()})
	var islands []*Patch
	for _, k := range branches {
		at := f.start + uint64(f.insts[k].off)
		if at >= p.At && at < p.End() || slices.ContainsFunc(islands, func(q *Patch) bool { return q.displaces(at) }) || t.ties(at) {
			continue
		}
		q := t.giving(k)
		if q == nil {
			drop(t.reach, append(islands, p))
			*t.used, t.tied = (*t.used)[:used], nil
			return t.fail("the branch at +%#x can't be moved away", f.insts[k].off)
		}
		for x := q; x != nil; x = x.Island {
			*t.used = append(*t.used, pad{int(x.At - f.start), int(max(x.End(), x.Lock) - f.start)})
		}
		islands = append(islands, q)
	}
	end := p
	for _, q := range islands {
		end = end.last()
		end.Island = q
	}
	return p
}

// branchesTo finds the branches that lead to the k-th instruction. why says what else may.
func (f *Func) branchesTo(k int) (list []int, why string) {
	off := f.insts[k].off
	at := f.start + uint64(off)
	switch {
	case !f.target(off):
		return nil, "no branch leads to it"
	case slices.Contains(f.entries, off), f.known.Target != nil && f.known.Target(at):
		return nil, "other functions lead to it"
	case f.unknown, slices.Contains(f.tabled, off):
		return nil, "a jump through a table may lead to it"
	}
	for n, i := range f.insts {
		if !i.Flags.Any(insn.RelBranch) {
			continue
		}
		in, code := f.whole(i)
		if to, ok := in.Target(f.start+uint64(i.off), code); !ok || to != at {
			continue
		}
		if i.Flags.Any(insn.Call) || len(list) == maxBypassed {
			return nil, "a call, or too many branches, lead to it"
		}
		list = append(list, n)
	}
	if len(list) == 0 {
		return nil, "what leads to it isn't known"
	}
	return list, ""
}

// guardAt builds the patch of the instruction, without its islands.
func (t *try) guardAt() *Patch {
	f := t.f
	here := f.insts[t.k]
	before := t.k - 1
	if before < 0 || f.insts[before].end() != here.off || t.beyond(here.end()) {
		return t.fail("what is before it isn't known")
	}
	falls := !f.insts[before].Is(insn.Stops) && !slices.ContainsFunc(f.pads, func(p pad) bool { return p.end == here.off })
	if falls && !t.ties(f.start+uint64(f.insts[before].off)) {
		return t.windowTo()
	}
	p := t.patch(Bypass, here.end(), 1)
	if !t.place(p, here.end(), free()) {
		return t.fail("no free address within 2 GiB")
	}
	p.Writes = []Write{{p.At, []byte{0xcc}}}
	p.Guards = []Guard{{p.At, 0xcc}}
	return p
}

// windowTo covers the instruction together with those before it, as back does, although
// branches lead to it.
func (t *try) windowTo() *Patch {
	f := t.f
	here := f.insts[t.k]
	for k := t.k - 1; k >= 0; k-- {
		i := f.insts[k]
		if i.end() != f.insts[k+1].off || i.off < t.low || i.Flags.Any(insn.Stops|insn.Call|insn.CET) || i.Refusal() != "" {
			break
		}
		if here.end()-i.off >= JumpLen {
			b := *t
			b.k, b.at, b.led = k, i.off, here.off
			p := b.guarded(Bypass, t.k, here.end())
			if p != nil {
				b.guardBehind(p, t.k)
			}
			return p
		}
		if f.target(i.off) {
			break
		}
	}
	return t.fail("the instructions before it can't be moved with it, wherever the branches lead")
}

// ties notes the earlier patch that has displaced the instruction at an address, which becomes an
// island. It reports whether there is one.
func (t *try) ties(at uint64) bool {
	for n, p := range t.done {
		for q := p; q != nil; q = q.Island {
			if !q.Tactic.Jump() || !q.displaces(at) {
				continue
			}
			if !slices.Contains(t.tied, n) {
				t.tied = append(t.tied, n)
			}
			return true
		}
	}
	return false
}

func (p *Patch) displaces(at uint64) bool { return at >= p.At && at < p.End() }

// giving plans the patch that moves the k-th instruction away, which nobody probes.
func (t *try) giving(k int) *Patch {
	f := t.f
	i := f.insts[k]
	if !f.reaches(k) || refusal(f.code[i.off:i.end()], f.start+uint64(i.off)) != "" {
		return nil
	}
	s := &try{f: f, reach: t.reach, used: t.used, sites: t.sites, k: k, at: i.off, room: IslandRoom, limit: math.MaxInt32}
	for _, list := range [2][]pad{*t.used, t.sites} {
		for _, u := range list {
			if u.end <= s.at {
				s.low = max(s.low, u.end)
			} else {
				s.limit = min(s.limit, max(u.off, s.at))
			}
		}
	}
	if s.hard = s.limit; s.hard <= s.at {
		return nil
	}
	for _, rung := range []func() *Patch{s.single, s.window, s.tail, s.back, s.short, s.pun, s.evict} {
		if p := rung(); p != nil {
			p.Why = "gives way to another probe's jump"
			return p
		}
	}
	return nil
}

// drop gives the room of patches back that are not used.
func drop(reach Reach, list []*Patch) {
	r, ok := reach.(interface{ Release(addr uint64, size int) })
	if !ok {
		return
	}
	for _, p := range list {
		for q := p; q != nil && q.Tactic.Jump(); q = q.Island {
			r.Release(q.Detour, q.Room)
		}
	}
}

// last is the last of a patch's islands, or the patch itself.
func (p *Patch) last() *Patch {
	for p.Island != nil {
		p = p.Island
	}
	return p
}

// tie makes the stated patches of a list islands of p, and returns the others.
func (p *Patch) tie(list []*Patch, which []int) []*Patch {
	var kept []*Patch
	if len(which) == 0 {
		return list
	}
	for n, q := range list {
		if slices.Contains(which, n) {
			p.last().Island = q
		} else {
			kept = append(kept, q)
		}
	}
	return kept
}

// Bypasses reports whether branches to a site of the patch, or of one of its islands, must lead
// to a detour.
func (p *Patch) Bypasses() bool {
	for q := p; q != nil; q = q.Island {
		if q.Tactic == Bypass {
			return true
		}
	}
	return false
}
