package plan

import "kprobe/probe/insn"

// maxLinks is how many jumps may share their bytes.
const maxLinks = 4

// link is one of several jumps that share their bytes. Its opcode is at the start of its first
// instruction. Its displacement consists of the bytes that follow, including the others'
// opcodes.
type link struct {
	first, last int // its instructions
	next        int // the offset behind them and the padding that is its own
	sites       []Site
}

// chain is for an instruction whose following bytes belong to instructions that are probed
// themselves, or may give way. These bytes become part of its jump, and each of those
// instructions gets a jump of its own, from the same bytes. An example are returns that lie
// side by side, each of which is branched to:
//
//	c3                    e9            the first's jump
//	31 c0 c3                 e9 x y     the second's, whose first bytes are the
//	66 90                        z w    displacement of the first; y is a guard
//
// The start of each stays a boundary, so branches may lead there.
func (t *try) chain() *Patch {
	links, ok := t.links()
	if !ok {
		return t.fail("the instructions after it can't share bytes with its jump")
	}
	for _, traps := range []ByteSet{int3Only(), Traps()} {
		if p := t.linked(links, traps); p != nil {
			for _, l := range links[1:] {
				*t.used = append(*t.used, pad{t.f.insts[l.first].off, max(l.next, t.f.insts[l.first].off+JumpLen)})
			}
			return p
		}
	}
	return t.fail("no free addresses for jumps that share their bytes")
}

// links finds the jumps that the instruction's jump needs, its own first. The last has all of
// its bytes to itself.
func (t *try) links() (list []link, ok bool) {
	f := t.f
	for k := t.k; len(list) < maxLinks; {
		l := link{first: k}
		start := f.insts[k].off
		if !f.reaches(k) {
			return nil, false
		}
		for {
			i := f.insts[k]
			if i.Refusal() != "" || i.Flags.Any(insn.Call|insn.CET) {
				return nil, false
			}
			l.last, l.next = k, i.end()
			if i.end()-start >= JumpLen || i.Is(insn.Stops) || f.target(i.end()) {
				break
			}
			if _, ok := f.follows(k); !ok {
				return nil, false
			}
			k++
		}
		if f.insts[l.last].Is(insn.Stops) && l.next < start+JumpLen {
			for _, p := range f.pads {
				if p.off == l.next {
					l.next = min(p.end, start+JumpLen)
				}
			}
		}
		if _, bad := f.targetIn(start+1, l.next); bad || f.splits(start, l.next) || t.needed(pad{start, l.next}) {
			return nil, false
		}
		for _, s := range t.rest {
			switch off := int(s.Addr - f.start); {
			case len(list) == 0 && off <= start: // an endbr64's, too
				l.sites = append(l.sites, s)
			case off >= start && off < l.next:
				l.sites = append(l.sites, s)
			}
		}
		for _, s := range l.sites {
			if s.Trap || int(s.Addr-f.start) >= f.insts[l.last].end() { // in the padding
				return nil, false
			}
		}
		list = append(list, l)
		if l.next-start >= JumpLen {
			return list, len(list) > 1
		}
		if k = f.index(f.start + uint64(l.next)); k < 0 {
			return nil, false
		}
	}
	return nil, false
}

// needed reports whether another patch needs any of the bytes.
func (t *try) needed(p pad) bool {
	for _, u := range *t.used {
		if p.off < u.end && u.off < p.end {
			return true
		}
	}
	return false
}

// linked finds places for the links' detours, one after another: each fixes bytes of the
// following ones.
func (t *try) linked(links []link, traps ByteSet) (out *Patch) {
	f := t.f
	bytes := map[int]ByteSet{} // by offset; what isn't here may be anything
	for _, l := range links {
		for k := l.first; k <= l.last; k++ {
			bytes[f.insts[k].off] = traps
		}
		bytes[f.insts[l.first].off] = OneByte(0xe9)
	}
	last := &out
	for n, l := range links {
		h := *t
		h.k, h.at = l.first, f.insts[l.first].off
		end := f.insts[l.last].end()
		h.room = 0
		for _, s := range l.sites {
			h.room += s.Room
		}
		if len(l.sites) == 0 {
			h.room = IslandRoom
		}
		tactic := Window
		switch {
		case end < l.next:
			tactic = TailPad
		case l.first == l.last && l.next-h.at < JumpLen:
			tactic = Pun
		}
		p := h.patch(tactic, end, max(JumpLen, end-h.at))
		rel := free()
		for b := range rel {
			if set, ok := bytes[h.at+1+b]; ok {
				rel[b] = set
			}
		}
		if !h.place(p, h.at+JumpLen, rel) {
			return nil
		}
		code := jump(p.At+JumpLen, p.Detour)
		for b, c := range code {
			bytes[h.at+b] = OneByte(c)
		}
		p.Writes = []Write{{p.At, code[:min(l.next-h.at, JumpLen)]}}
		for k := l.first + 1; k <= l.last; k++ {
			if off := f.insts[k].off - h.at; off < JumpLen {
				p.Guards = append(p.Guards, Guard{p.At + uint64(off), code[off]})
			}
		}
		if n > 0 {
			for _, s := range l.sites {
				p.Sites = append(p.Sites, s.Addr)
			}
			if p.Why = "its jump shares its bytes with another probe's"; len(p.Sites) == 0 {
				p.Why = "gives way to another probe's jump"
			}
		}
		*last = p
		last = &p.Island
	}
	return out
}
