package plan

import "kprobe/probe/insn"

// evict makes the bytes after the instruction part of a jump that starts at it or, as in back,
// before it. The instructions that these bytes belong to are moved away, into an island, whose
// own jump consists of the same bytes. If the first jump is n bytes before the second, the last
// 4-n bytes of its displacement are the first of the second's.
//
//	e9 g  e9 x  y              the probed instructions' jump, g a guard
//	      e9 x  y  z  w        the island's
//
// The boundary between the two stays one, so branches may lead to it. Padding before it belongs
// to the first jump.
func (t *try) evict() *Patch {
	f := t.f
	here := f.insts[t.k]
	from := here.end()
	for _, p := range f.pads {
		if p.off == from && here.Is(insn.Stops) && t.claim(p) {
			from = p.end
		}
	}
	first := f.index(f.start + uint64(from))
	if first < 0 {
		return t.fail("no instruction after it could give way")
	}
	last, ok := t.movable(first, from+JumpLen, -1)
	end := 0
	if ok {
		end = f.insts[last].end()
		ok = end <= t.limit && t.claim(pad{from, end})
	}
	if !ok {
		return t.fail("the instructions after it can't give way")
	}
	for k := t.k; k >= 0; k-- {
		i := f.insts[k]
		n := from - i.off
		if n >= JumpLen || k < t.k && (i.end() != f.insts[k+1].off || f.target(f.insts[k+1].off) || i.off < t.low ||
			i.Flags.Any(insn.Stops|insn.Call|insn.CET) || i.Refusal() != "") {
			break
		}
		if _, bad := f.targetIn(i.off+1, here.end()); bad || f.splits(i.off, here.end()) {
			break
		}
		b := *t
		b.k, b.at = k, i.off
		if p := b.evicting(t.k, first, last); p != nil {
			*t.used = append(*t.used, pad{from, end})
			return p
		}
	}
	return t.fail("no free addresses for two jumps that share their bytes")
}

// evicting builds the jump over the instructions up to the k-th and the padding after it, and
// the one over the instructions from first to last.
func (t *try) evicting(k, first, last int) *Patch {
	f := t.f
	h := *t
	h.k, h.at, h.room = first, f.insts[first].off, IslandRoom
	n, end := h.at-t.at, f.insts[k].end()
	tactic := Pun
	switch {
	case end < h.at:
		tactic = TailPad
	case t.k < k:
		tactic = Window
	}
	for _, traps := range []ByteSet{int3Only(), Traps()} {
		p := t.patch(tactic, end, JumpLen)
		rel := free()
		for j := t.k + 1; j <= k; j++ {
			rel[f.insts[j].off-t.at-1] = traps
		}
		rel[n-1] = OneByte(0xe9)
		// Bytes that both displacements have, where they are boundaries.
		for j := first + 1; j <= last; j++ {
			if off := f.insts[j].off - t.at; off < JumpLen {
				rel[off-1] = traps
			}
		}
		if !t.place(p, t.at+JumpLen, rel) {
			continue
		}
		bytes := jump(p.At+JumpLen, p.Detour)
		far := free()
		for b := n + 1; b < JumpLen; b++ {
			far[b-n-1] = OneByte(bytes[b])
		}
		for j := first + 1; j <= last; j++ {
			if off := f.insts[j].off - h.at; off < JumpLen && off+n >= JumpLen {
				far[off-1] = traps
			}
		}
		island := h.patch(Window, f.insts[last].end(), max(JumpLen, f.insts[last].end()-h.at))
		if !h.place(island, h.at+JumpLen, far) {
			continue
		}
		p.Writes = []Write{{p.At, bytes[:n:n]}}
		for j := t.k + 1; j <= k; j++ {
			off := f.insts[j].off - t.at
			p.Guards = append(p.Guards, Guard{p.At + uint64(off), bytes[off]})
		}
		island.Writes = []Write{{island.At, jump(island.At+JumpLen, island.Detour)}}
		island.Why = "gives way to another probe's jump"
		for j := first + 1; j <= last; j++ {
			if off := f.insts[j].off - h.at; off < JumpLen {
				island.Guards = append(island.Guards, Guard{island.At + uint64(off), island.Writes[0].Bytes[off]})
			}
		}
		p.Island = island
		return p
	}
	return nil
}
