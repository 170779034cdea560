package plan

import "iter"

// Who owns a byte of text
//
// Every byte of text has at most one owner, an armed patch or breakpoint, from
// before its first write until after it is restored. What a patch owns is all
// that its meaning depends on:
//
//   - what it writes, at its place, in padding and in its island;
//   - what it reads: the bytes behind a pun, or behind a short jump of one
//     byte, which are part of its displacement;
//   - what it displaces: no thread comes there any more, so whatever else is
//     put there would never be hit.
//
// Nobody else may write to such a byte or displace it while the patch stands.
// So patches that don't share a byte can be armed, taken out and stepped back
// in any order; and who needs a byte that is owned (a probe placed there later,
// a return address) first has the owner taken out as a whole, its island with it.
// The planner keeps to that within a function; everybody else asks Owns.

// Owns gives the ranges of text that belong to the patch, those of its island
// included. They may overlap each other. A refused patch owns nothing.
func (p *Patch) Owns() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		for q := p; q != nil; q = q.Island {
			hi := q.Lock
			if q.Tactic.Jump() {
				hi = max(hi, q.End())
			}
			if q.Tactic != Refused && !yield(Range{q.At, hi}) {
				return
			}
			for _, w := range q.Writes {
				if !yield(Range{w.At, w.At + uint64(len(w.Bytes))}) {
					return
				}
			}
		}
	}
}

// AllSites gives the sites that the patch serves, those of its island included.
func (p *Patch) AllSites() []uint64 {
	out := p.Sites
	for q := p.Island; q != nil; q = q.Island {
		if len(q.Sites) > 0 {
			out = append(out[:len(out):len(out)], q.Sites...)
		}
	}
	return out
}

// Owned reports whether any byte of [lo, hi) belongs to the patch.
func (p *Patch) Owned(lo, hi uint64) bool {
	for r := range p.Owns() {
		if lo < r.Hi && r.Lo < hi {
			return true
		}
	}
	return false
}

// LongJump is the address of the jump that a ShortJump leads to; 0 of others.
// It is no boundary of the original code: when the patch is taken out, a thread
// that stands there has to be led on, to Detour.
func (p *Patch) LongJump() uint64 {
	switch {
	case p.Tactic != ShortJump:
		return 0
	case p.Island != nil:
		w := p.Island.Writes[0]
		return w.At + uint64(len(w.Bytes)) - JumpLen
	}
	return p.Writes[0].At
}
