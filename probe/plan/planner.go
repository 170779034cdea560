package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"kprobe/probe/insn"
)

// ErrNotBoundary is wrapped by errors about sites at which no instruction
// starts.
var ErrNotBoundary = errors.New("not the start of an instruction")

// Plan plans all sites of a function at once. A site that lies under the jump of a lower one
// becomes part of its patch. If neither can give way, the lower one falls back to another
// tactic. Two sites of one address are one.
//
// The patches come in order of address. A site that can't be patched at all gets a patch with
// the tactic Refused. taken are bytes that patches of an earlier plan need, as [At, Lock) and
// their Writes; no new patch touches them. The error concerns a site's address and wraps
// ErrNotBoundary.
func Plan(f *Func, sites []Site, reach Reach, taken []Range) ([]*Patch, error) {
	sites, err := f.sorted(sites)
	if err != nil {
		return nil, err
	}
	out := f.plan(sites, reach, taken, false)
	traps := untaken(out, sites)
	if traps == 0 || len(sites) == 1 {
		return out, nil
	}
	// A pun leaves the instructions before it alone, but the next site may need bytes that it locks.
	again := f.plan(sites, reach, taken, true)
	if untaken(again, sites) < traps {
		out, again = again, out
	}
	drop(reach, again)
	return out, nil
}

// untaken is the number of patches that are breakpoints although a jump was wanted.
func untaken(list []*Patch, sites []Site) (n int) {
	for _, p := range list {
		if p.Tactic == Breakpoint && !slices.ContainsFunc(sites, func(s Site) bool { return s.Addr == p.Sites[0] && s.Trap }) {
			n++
		}
	}
	return n
}

// plan plans sites, which are in order. punsLate says that puns are tried after what takes the
// instructions before the site along.
func (f *Func) plan(sites []Site, reach Reach, taken []Range, punsLate bool) []*Patch {
	used := &f.room.used
	*used = (*used)[:0]
	for _, r := range taken {
		*used = append(*used, pad{int(int64(r.Lo - f.start)), int(int64(r.Hi - f.start))})
	}
	probed := f.room.probed[:0]
	for _, s := range sites {
		off := int(s.Addr - f.start)
		probed = append(probed, pad{off, f.insts[f.index(s.Addr)].end()})
	}
	var out []*Patch
	low := 0
	for n := 0; n < len(sites); {
		t := &f.room.try
		*t = try{f: f, reach: reach, used: used, sites: probed, low: low, done: out, punsLate: punsLate}
		p := f.one(t, sites[n:])
		if p.Tactic != Refused {
			low = int(max(p.End(), p.Lock) - f.start)
			*used = append(*used, pad{int(p.At - f.start), low})
		}
		// Everything that the jump displaced goes with it.
		last := n + 1
		for last < len(sites) && sites[last].Addr < p.End() && p.Tactic.Jump() {
			last++
		}
		for _, s := range sites[n:last] {
			p.Sites = append(p.Sites, s.Addr)
		}
		// And what has jumps that share its bytes.
		for q := p.Island; q != nil; q = q.Island {
			if len(q.Sites) > 0 {
				last += len(q.Sites)
				low = max(low, int(max(q.End(), q.Lock)-f.start))
			}
		}
		out = append(p.tie(out, t.tied), p)
		n = last
	}
	f.room.probed = probed
	return out
}

// sorted returns the sites in order, one for each address.
func (f *Func) sorted(sites []Site) ([]Site, error) {
	sites = slices.Clone(sites)
	slices.SortStableFunc(sites, func(a, b Site) int { return cmp.Compare(a.Addr, b.Addr) })
	var out []Site
	for _, s := range sites {
		if f.index(s.Addr) < 0 {
			return nil, fmt.Errorf("%#x: %w", s.Addr, ErrNotBoundary)
		}
		if s.Room <= 0 {
			s.Room = DefaultRoom
		}
		if n := len(out); n > 0 && out[n-1].Addr == s.Addr {
			out[n-1].Room = max(out[n-1].Room, s.Room)
			out[n-1].Trap = out[n-1].Trap || s.Trap
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

// one plans the first of the sites, knowing those that follow.
func (f *Func) one(t *try, sites []Site) *Patch {
	s := sites[0]
	t.rest = sites
	t.k, t.room = f.index(s.Addr), s.Room
	t.at = f.insts[t.k].off
	at := f.start + uint64(t.at)
	why := refusal(f.code[t.at:f.insts[t.k].end()], at)
	if why != "" {
		p := t.patch(Refused, f.insts[t.k].end(), 0)
		p.Why = why
		return p
	}
	t.skipEndbr(sites)
	t.limits(sites)
	if t.hard <= t.at {
		p := t.patch(Refused, f.insts[t.k].end(), 0)
		p.Why = "its bytes are needed by another probe's jump"
		return p
	}
	if s.Trap {
		p := t.patch(Breakpoint, f.insts[t.k].end(), 1)
		p.Writes = []Write{{p.At, []byte{0xcc}}}
		p.Why = "a handler must run at the hit itself"
		return p
	}
	return t.best()
}

// skipEndbr moves on to the instruction after an endbr64, so that indirect branches still find
// it where they must. It doesn't if something leads to that instruction, which would be taken
// for a hit.
func (t *try) skipEndbr(sites []Site) {
	const endbrLen = 4
	i := t.f.insts[t.k]
	next, ok := t.f.follows(t.k)
	if !i.Is(insn.CET) || i.Len != endbrLen || !ok || t.f.target(next.off) || next.Refusal() != "" {
		return
	}
	if len(sites) > 1 && sites[1].Addr == t.f.start+uint64(next.off) && sites[1].Trap != sites[0].Trap {
		return
	}
	t.k++
	t.at = next.off
}

// limits determines how far the patch may reach, and adds the room for the sites that it may
// come to serve.
func (t *try) limits(sites []Site) {
	// The longest window is one byte short of the jump and the longest
	// instruction.
	const longest = JumpLen - 1 + insn.MaxLen
	t.limit, t.hard = math.MaxInt32, math.MaxInt32
	for _, s := range sites[1:] {
		off := int(s.Addr - t.f.start)
		if off >= t.at+longest {
			break
		}
		if off > t.at {
			t.limit = min(t.limit, off)
		}
		if s.Trap && off > t.at {
			t.hard = min(t.hard, off)
			break
		}
		t.room += s.Room
	}
	for _, u := range *t.used {
		if u.end <= t.at {
			t.low = max(t.low, u.end)
		} else {
			t.hard = min(t.hard, max(u.off, t.at))
		}
	}
	t.limit = min(t.limit, t.hard)
}

// refusal returns why instructions can't run anywhere else, however near; "" if they can.
func refusal(code []byte, at uint64) string {
	if insn.SameBytes(code) == len(code) {
		return ""
	}
	_, err := insn.RelocateWindow(code, at, at, insn.Options{})
	if err == nil {
		return ""
	}
	return err.Error()
}
