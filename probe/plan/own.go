package plan

import "iter"

// Who owns a byte of text
//
// Every byte of text has at most one owner, an armed patch or breakpoint, from before its first
// write until after it is restored. A patch owns everything on which its meaning depends:
//
//   - what it writes, at its place, in padding and in its island;
//   - what it reads: the bytes after a pun, or after a short jump of one byte, which are part
//     of its displacement;
//   - what it displaces: no thread comes there any more, so anything else that is put there
//     would never be hit.
//
// Nobody else may write to such a byte or displace it while the patch is in place. So patches
// that don't share a byte can be armed, removed and turned into breakpoints in any order.
// Whoever needs an owned byte (for a probe that is placed there later, or a return address)
// must first have the owner removed as a whole, with its island. The planner follows this
// within a function; everybody else asks Owns.

// Owns yields the ranges of text that belong to the patch, including those of its island. They
// may overlap each other. A refused patch owns nothing.
func (p *Packed) Owns() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		for q := p; q != nil; q = q.Island {
			if q.Tactic != Refused && !yield(q.Own()) {
				return
			}
			data := q.firstWrite()
			for range q.writes {
				var w Write
				if w, data = q.write(data); !yield(Range{w.At, w.At + uint64(len(w.Bytes))}) {
					return
				}
			}
		}
	}
}

// Own is the range of text at the patch's place that belongs to it, without its writes elsewhere and its island.
func (p *Packed) Own() Range {
	hi := p.Lock()
	if p.Tactic.Jump() {
		hi = max(hi, p.End())
	}
	return Range{p.At, hi}
}

// AllSites returns the sites that the patch serves, including those of its island.
func (p *Patch) AllSites() []uint64 {
	out := p.Sites
	for q := p.Island; q != nil; q = q.Island {
		if len(q.Sites) > 0 {
			out = append(out[:len(out):len(out)], q.Sites...)
		}
	}
	return out
}

// Serves reports whether an address is a site of the patch or of its island.
func (p *Packed) Serves(at uint64) bool { return p.ServesIn(at, at+1) }

// ServesIn reports whether the patch or its island has a site in [lo, hi).
func (p *Packed) ServesIn(lo, hi uint64) bool {
	for q := p; q != nil; q = q.Island {
		for n := range int(q.sites) {
			if at := q.site(n); lo <= at && at < hi {
				return true
			}
		}
	}
	return false
}

// Owned reports whether any byte of [lo, hi) belongs to the patch.
func (p *Packed) Owned(lo, hi uint64) bool {
	for r := range p.Owns() {
		if lo < r.Hi && r.Lo < hi {
			return true
		}
	}
	return false
}

// LongJump returns the address of the jump to which a ShortJump leads; 0 for other tactics. It
// is no boundary of the original code: when the patch is removed, a thread that stands there
// must be led on, to Detour.
func (p *Packed) LongJump() uint64 {
	switch {
	case p.Tactic != ShortJump:
		return 0
	case p.writes == 1:
		w, _ := p.Island.write(p.Island.firstWrite())
		return w.At + uint64(len(w.Bytes)) - JumpLen
	}
	w, _ := p.write(p.firstWrite())
	return w.At
}
