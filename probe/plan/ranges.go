package plan

import (
	"slices"
	"sort"
)

// rangeSet is a set of addresses as ranges in order; those that touch are joined. A chunk may have
// hundreds of thousands of ranges, so they stand in blocks: a change moves the ranges of one block. The zero value is
// empty.
type rangeSet struct{ blocks [][]Range } // none is empty

// blockMost is the largest number of ranges in a block.
const blockMost = 512

// from finds the first range whose end is at least lo.
func (s *rangeSet) from(lo uint64) (block, at int) {
	block = sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i][len(s.blocks[i])-1].Hi >= lo })
	if block < len(s.blocks) {
		b := s.blocks[block]
		at = sort.Search(len(b), func(i int) bool { return b[i].Hi >= lo })
	}
	return block, at
}

// get is the range at a position; nil behind the last.
func (s *rangeSet) get(block, at int) *Range {
	if block < len(s.blocks) && at == len(s.blocks[block]) {
		block, at = block+1, 0
	}
	if block >= len(s.blocks) {
		return nil
	}
	return &s.blocks[block][at]
}

// hit is the first range that overlaps r.
func (s *rangeSet) hit(r Range) (Range, bool) {
	u := s.get(s.from(r.Lo + 1))
	if u == nil || u.Lo >= r.Hi {
		return Range{}, false
	}
	return *u, true
}

// add adds r.
func (s *rangeSet) add(r Range) {
	i, k := s.from(r.Lo)
	u := s.get(i, k)
	if u == nil || u.Lo > r.Hi {
		s.insert(i, k, r)
		return
	}
	u.Lo, u.Hi = min(u.Lo, r.Lo), max(u.Hi, r.Hi)
	for next := s.get(i, k+1); next != nil && next.Lo <= u.Hi; next = s.get(i, k+1) {
		u.Hi = max(u.Hi, next.Hi)
		s.drop(i, k+1)
	}
}

// remove removes r.
func (s *rangeSet) remove(r Range) {
	for {
		i, k := s.from(r.Lo + 1)
		u := s.get(i, k)
		switch {
		case u == nil || u.Lo >= r.Hi:
			return
		case u.Lo < r.Lo && u.Hi > r.Hi:
			rest := Range{r.Hi, u.Hi}
			u.Hi = r.Lo
			s.insert(i, k+1, rest)
			return
		case u.Lo < r.Lo:
			u.Hi = r.Lo
		case u.Hi > r.Hi:
			u.Lo = r.Hi
			return
		default:
			s.drop(i, k)
		}
	}
}

// insert makes r the range at a position.
func (s *rangeSet) insert(block, at int, r Range) {
	if block == len(s.blocks) {
		if block == 0 {
			s.blocks = append(s.blocks, nil)
		} else {
			block, at = block-1, len(s.blocks[block-1])
		}
	}
	b := slices.Insert(s.blocks[block], at, r)
	if s.blocks[block] = b; len(b) > blockMost {
		half := len(b) / 2
		s.blocks[block] = b[:half:half]
		s.blocks = slices.Insert(s.blocks, block+1, slices.Clone(b[half:]))
	}
}

// drop removes the range at a position.
func (s *rangeSet) drop(block, at int) {
	if at == len(s.blocks[block]) {
		block, at = block+1, 0
	}
	if s.blocks[block] = slices.Delete(s.blocks[block], at, at+1); len(s.blocks[block]) == 0 {
		s.blocks = slices.Delete(s.blocks, block, block+1)
	}
}
