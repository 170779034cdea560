package plan

import "kprobe/probe/insn"

const (
	// shortLen is the length of a jump with an 8-bit displacement (EB). shortReach is how
	// far back it reaches from its end; forward it is one less.
	shortLen   = 2
	shortReach = 128
)

// lead is a planned short jump over the instructions from k on. The probed one is the last of
// them.
type lead struct {
	try
	end   int     // of what is displaced
	rel8  ByteSet // what its displacement may be
	guard bool    // it covers an old boundary
	pun   bool    // its displacement is not its own
}

// short leads to a long jump in padding, or in an island made for it. The short jump is at the
// instruction itself or, as in back, before it.
func (t *try) short() *Patch {
	leads := t.leads()
	if len(leads) == 0 {
		return t.fail("no room for a short jump")
	}
	for _, build := range [2]func(*lead) *Patch{(*lead).padded, (*lead).holed} {
		for i := range leads {
			l := &leads[i]
			if p := build(l); p != nil {
				return p
			}
		}
	}
	return t.fail("neither padding nor instructions that could give way within a short jump's reach")
}

// leads returns the possible places for the short jump, the best first.
func (t *try) leads() []lead {
	f := t.f
	here := f.insts[t.k]
	if t.beyond(here.end()) {
		return nil
	}
	var out []lead
	for k := t.k; k >= 0 && len(out) < 3; k-- {
		i := f.insts[k]
		if k < t.k {
			next := f.insts[k+1].off
			far := here.off-i.off >= shortLen && f.indirect
			if i.end() != next || f.target(next) || i.off < t.low || far ||
				i.Flags.Any(insn.Stops|insn.Call|insn.CET) || i.Refusal() != "" {
				break
			}
		}
		if f.splits(i.off, here.end()) {
			break
		}
		b := lead{try: *t, end: here.end(), rel8: AnyByte()}
		b.k, b.at = k, i.off
		switch {
		case here.end()-i.off < shortLen && f.padded(here) && t.claim(pad{here.end(), i.off + shortLen}):
			// The displacement is in the padding behind it.
		case here.end()-i.off < shortLen:
			// Only the opcode fits; the displacement is what follows.
			if i.end() == len(f.code) || i.end()+1 > t.limit || !t.claim(pad{i.end(), i.end() + 1}) {
				continue
			}
			b.rel8, b.pun = OneByte(f.code[i.end()]), true
		case i.Len < shortLen:
			b.rel8, b.guard = Traps(), true
		case f.target(i.off + 1):
			continue
		}
		out = append(out, b)
	}
	return out
}

// free reports whether bytes can be used for the long jump: neither another patch nor a probe
// nor the short jump itself needs them.
func (t *lead) free(p pad) bool {
	return t.claim(p) && (p.end <= t.at || p.off >= max(t.end, t.at+shortLen))
}

// patched returns the patch without its long jump.
func (t *lead) patched(rel8 byte) *Patch {
	p := t.patch(ShortJump, t.end, shortLen)
	p.Writes = []Write{{p.At, []byte{0xeb, rel8}}}
	if t.pun {
		p.Writes[0].Bytes = p.Writes[0].Bytes[:1]
	}
	if t.guard {
		p.Guards = []Guard{{p.At + 1, rel8}}
	}
	return p
}

// owed returns how many bytes of padding the jump of a probe right before it may need.
func (t *lead) owed(p pad) int {
	for _, s := range t.sites {
		if s.end == p.off && s.off != t.f.insts[t.try.k].off {
			return max(0, JumpLen-(s.end-s.off))
		}
	}
	return 0
}

// padded puts the long jump into padding.
func (t *lead) padded() *Patch {
	from := t.at + shortLen
	for _, pd := range t.f.pads {
		for off := max(pd.off+t.owed(pd), from-shortReach); off+JumpLen <= pd.end && off < from+shortReach; off++ {
			rel8 := byte(off - from)
			if !t.rel8.Has(rel8) || !t.free(pad{off, off + JumpLen}) {
				continue
			}
			p := t.patched(rel8)
			if !t.place(p, off+JumpLen, free()) {
				return nil
			}
			*t.used = append(*t.used, pad{off, off + JumpLen})
			at := t.f.start + uint64(off)
			p.Writes = append([]Write{{at, jump(at+JumpLen, p.Detour)}}, p.Writes...)
			return p
		}
	}
	return nil
}
