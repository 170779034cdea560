package plan

import "kprobe/probe/insn"

// islandSpread is how many bytes may lie between an island's two jumps: the one to the copy of
// the instructions that were there, and the long jump to which a short one leads.
const islandSpread = 7

// IslandRoom is the room for the copy of what an island displaces: at most 16 + 15 bytes of
// instructions, each of which may grow when it is moved.
const IslandRoom = 256

// holed makes room for the long jump: it moves instructions within reach, which nobody probes,
// into a copy.
func (t *lead) holed() *Patch {
	from := t.at + shortLen
	for k := range t.f.insts {
		off := t.f.insts[k].off
		if off < t.low || off+JumpLen+islandSpread < from-shortReach {
			continue
		}
		if off+JumpLen >= from+shortReach {
			break
		}
		for to := off + JumpLen; to <= off+JumpLen+islandSpread; to++ {
			rel8 := byte(to - from)
			if to < from-shortReach || to >= from+shortReach || !t.rel8.Has(rel8) {
				continue
			}
			last, ok := t.movable(k, to+JumpLen, to)
			if !ok {
				continue
			}
			end := t.f.insts[last].end()
			if end > t.hard && off < t.hard || !t.free(pad{off, max(end, to+JumpLen)}) {
				continue
			}
			if p := t.over(k, last, to, rel8); p != nil {
				*t.used = append(*t.used, pad{off, max(end, to+JumpLen)})
				return p
			}
		}
	}
	return nil
}

// movable finds the last of the instructions from the k-th on that must be moved for an island
// up to end. None may start at not, where the long jump will be.
func (t *try) movable(k, end, not int) (last int, ok bool) {
	f := t.f
	start := f.insts[k].off
	for ; ; k++ {
		i := f.insts[k]
		switch {
		case i.off == not, !f.reaches(k):
			return 0, false
		case i.off > start && f.target(i.off), i.Refusal() != "", i.Is(insn.CET):
			return 0, false
		case i.end() >= end:
			_, bad := f.targetIn(start+1, end)
			return k, !bad && !f.splits(start, i.end())
		case i.Flags.Any(insn.Call | insn.Stops):
			return 0, false
		}
		if _, ok := f.follows(k); !ok {
			return 0, false
		}
	}
}

// over builds the short jump, by rel8, to a long one at to, in the island made of the
// instructions k … last. The bytes between the island's jumps are filled with int3.
func (t *lead) over(k, last, to int, rel8 byte) *Patch {
	f := t.f
	h := t.try
	h.k, h.at, h.room = k, f.insts[k].off, IslandRoom
	long := to - h.at
	island := h.patch(Window, f.insts[last].end(), max(long+JumpLen, f.insts[last].end()-h.at))
	for _, traps := range []ByteSet{int3Only(), Traps()} {
		near, far := free(), free()
		for j := k + 1; j <= last; j++ {
			switch off := f.insts[j].off - h.at; {
			case off < JumpLen:
				near[off-1] = traps
			case off > long && off < long+JumpLen:
				far[off-long-1] = traps
			}
		}
		p := t.patched(rel8)
		if !h.place(island, h.at+JumpLen, near) || !t.place(p, to+JumpLen, far) {
			continue
		}
		bytes := jump(island.At+JumpLen, island.Detour)
		for len(bytes) < long {
			bytes = append(bytes, 0xcc)
		}
		bytes = append(bytes, jump(f.start+uint64(to+JumpLen), p.Detour)...)
		island.Writes = []Write{{island.At, bytes}}
		island.Why = "gives way to another probe's jump"
		for j := k + 1; j <= last; j++ {
			if off := f.insts[j].off - h.at; off < len(bytes) {
				island.Guards = append(island.Guards, Guard{island.At + uint64(off), bytes[off]})
			}
		}
		p.Island = island
		return p
	}
	return nil
}
