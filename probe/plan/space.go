package plan

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

const (
	pageSize = 4096
	// chunkSize is how much is mapped at once if any address will do: mappings are scarce
	// (a process has 65,530), untouched addresses are not.
	chunkSize = 64 << 10
	// wideChunk is the same if the upper half of the detour's address is bound: it covers
	// every value of the second highest byte.
	wideChunk = 16 << 20
)

// Space is the code memory of a target: what is mapped and taken, and the addresses at which
// more can be mapped. The zero value is empty. It is not safe for concurrent use.
type Space struct {
	gaps   []Range // free addresses, page-aligned, in order
	spare  []Range // more of them, for Spared
	chunks []*chunk
	fresh  []Range
	// last is, for each set of bound displacement bytes, where room was last found: the
	// next probably fits after it.
	last [16]uint64
}

// chunk is code memory: mapped, or to be mapped.
type chunk struct {
	Range
	used    rangeSet
	touched []uint64 // a bit per page that holds code
}

// NewSpace takes the target's free addresses, in order. The caller leaves out what must stay
// free: the room for the heap and the stacks to grow.
func NewSpace(gaps []Range) *Space {
	return &Space{gaps: pages(gaps)}
}

// pages are the whole pages in ranges.
func pages(ranges []Range) (out []Range) {
	for _, g := range ranges {
		lo, hi := (g.Lo+pageSize-1)&^(pageSize-1), g.Hi&^(pageSize-1)
		if lo < hi {
			out = append(out, Range{lo, hi})
		}
	}
	return out
}

// SetSpare takes free addresses, in order, that only what Spared calls may use.
func (s *Space) SetSpare(ranges []Range) { s.spare = pages(ranges) }

// Spared calls f, for which Find may use spare addresses. It doesn't if there are none.
func (s *Space) Spared(f func()) {
	if len(s.spare) == 0 {
		return
	}
	spare := s.spare
	s.gaps, s.spare = slices.Concat(s.gaps, spare), nil
	slices.SortFunc(s.gaps, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	f()
	all := s.gaps
	s.gaps = nil
	for _, r := range all {
		if in := func(x Range) bool { return r.Lo >= x.Lo && r.Hi <= x.Hi }; slices.ContainsFunc(spare, in) {
			s.spare = append(s.spare, r)
		} else {
			s.gaps = append(s.gaps, r)
		}
	}
}

// Mapped adds code memory that exists already. taken are ranges that are in use, in order; parts of
// them outside r don't count.
func (s *Space) Mapped(r Range, taken []Range) {
	s.Exclude(r)
	c := &chunk{Range: r}
	for _, u := range taken {
		if u = (Range{max(u.Lo, r.Lo), min(u.Hi, r.Hi)}); u.Lo < u.Hi {
			c.take(u)
		}
	}
	s.insert(c)
}

// Exclude removes addresses from those at which memory can be mapped, because somebody else has
// mapped them.
func (s *Space) Exclude(r Range) {
	s.gaps, s.spare = without(s.gaps, r), without(s.spare, r)
}

// without removes r from ranges, which are in order, in place.
func without(ranges []Range, r Range) []Range {
	from := sort.Search(len(ranges), func(i int) bool { return ranges[i].Hi > r.Lo })
	to := from
	var left [2]Range
	n := 0
	for ; to < len(ranges) && ranges[to].Lo < r.Hi; to++ {
		g := ranges[to]
		if g.Lo < r.Lo {
			left[n] = Range{g.Lo, r.Lo}
			n++
		}
		if g.Hi > r.Hi {
			left[n] = Range{r.Hi, g.Hi}
			n++
		}
	}
	return slices.Replace(ranges, from, to, left[:n]...)
}

// Fresh returns the memory that must be mapped for the results of Find since the last call,
// adjacent ranges joined.
func (s *Space) Fresh() []Range {
	slices.SortFunc(s.fresh, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	var out []Range
	for _, r := range s.fresh {
		if n := len(out); n > 0 && out[n-1].Hi == r.Lo {
			out[n-1].Hi = r.Hi
			continue
		}
		out = append(out, r)
	}
	s.fresh = nil
	return out
}

// Release frees room that Find returned.
func (s *Space) Release(addr uint64, size int) {
	r := Range{addr, addr + uint64(size)}
	i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].Lo > addr })
	if i > 0 && r.Hi <= s.chunks[i-1].Hi {
		c := s.chunks[i-1]
		c.used.remove(r)
	}
}

// Find implements Reach. It prefers pages that hold code already, then memory
// that is mapped, then addresses upward from w.Near.
func (s *Space) Find(w Want) (uint64, bool) {
	if w.Size <= 0 || w.Lo > w.Hi {
		return 0, false
	}
	last := &s.last[bound(w.Rel)]
	if from := *last &^ (pageSize - 1); from > w.Lo && from < w.Hi {
		if a, ok := s.inChunks(w, from, true); ok {
			*last = a
			return a, true
		}
	}
	for _, touched := range [2]bool{true, false} {
		if a, ok := s.inChunks(w, w.Lo, touched); ok {
			*last = a
			return a, true
		}
	}
	for _, from := range [2]uint64{max(w.Lo, min(w.Near, w.Hi)), w.Lo} {
		a, ok := s.claim(w, from)
		if ok {
			*last = a
			return a, true
		}
	}
	return 0, false
}

// bound has a bit for each byte of a displacement that can't have every value.
func bound(rel [4]ByteSet) (bits int) {
	for i, set := range rel {
		if set != AnyByte() {
			bits |= 1 << i
		}
	}
	return bits
}

// claim takes a new chunk with room for w from an address on.
func (s *Space) claim(w Want, from uint64) (uint64, bool) {
	a, gap, ok := s.inGaps(w, from)
	if !ok {
		return 0, false
	}
	size := uint64(chunkSize)
	var middle uint64
	switch b := bound(w.Rel); {
	case b&8 != 0:
		size, middle = wideChunk, wideChunk/2
	case b&4 != 0:
		size, middle = wideChunk, chunkSize/2
	}
	// The neighbours' addresses slide with their sites: the middle of the
	// stretch that is allowed suits most of them.
	if m, g, ok := s.inGaps(w, a+middle); ok && g == gap && m < a+2*middle {
		a = m
	}
	// The whole aligned block around the detour, as far as it is free.
	r := Range{a &^ (size - 1), (a + uint64(w.Size) + size - 1) &^ (size - 1)}
	r.Lo, r.Hi = max(r.Lo, gap.Lo), min(r.Hi, gap.Hi)
	s.Exclude(r)
	c := &chunk{Range: r}
	c.take(Range{a, a + uint64(w.Size)})
	s.insert(c)
	s.fresh = append(s.fresh, r)
	return a, true
}

// findTries bounds each search through what is mapped.
const findTries = 1024

// inChunks searches mapped memory for room, from an address on. If touched is set, it searches
// only pages that hold code.
func (s *Space) inChunks(w Want, a uint64, touched bool) (uint64, bool) {
	for range findTries {
		var ok bool
		if a, ok = w.Next(a); !ok {
			return 0, false
		}
		i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].Hi > a })
		if i == len(s.chunks) {
			return 0, false
		}
		c := s.chunks[i]
		if a < c.Lo {
			a = c.Lo
			continue
		}
		r := Range{a, a + uint64(w.Size)}
		if r.Hi > c.Hi {
			a = c.Hi
			continue
		}
		if touched {
			if next := c.nextTouched(a); next > a {
				a = next
				continue
			}
		}
		if u, hit := c.used.hit(r); hit {
			a = u.Hi
			continue
		}
		c.take(r)
		return a, true
	}
	return 0, false
}

// nextTouched returns the lowest address from a on whose page holds code, or the chunk's end.
func (c *chunk) nextTouched(a uint64) uint64 {
	page := (a - c.Lo) / pageSize
	for i := page / 64; i < uint64(len(c.touched)); i++ {
		w := c.touched[i]
		if i == page/64 {
			w &= ^uint64(0) << (page % 64)
		}
		if w != 0 {
			return max(a, c.Lo+(i*64+uint64(bits.TrailingZeros64(w)))*pageSize)
		}
	}
	return c.Hi
}

// inGaps searches, from an address on, for one at which memory could be mapped.
func (s *Space) inGaps(w Want, a uint64) (at uint64, gap Range, ok bool) {
	for {
		if a, ok = w.Next(a); !ok {
			return 0, gap, false
		}
		i := sort.Search(len(s.gaps), func(i int) bool { return s.gaps[i].Hi > a })
		if i == len(s.gaps) {
			return 0, gap, false
		}
		gap = s.gaps[i]
		switch {
		case a < gap.Lo:
			a = gap.Lo
		case a+uint64(w.Size) > gap.Hi:
			a = gap.Hi
		default:
			return a, gap, true
		}
	}
}

func (s *Space) insert(c *chunk) {
	i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].Lo > c.Lo })
	s.chunks = slices.Insert(s.chunks, i, c)
}

// take notes that r is used.
func (c *chunk) take(r Range) {
	pages := (c.Hi - c.Lo + pageSize - 1) / pageSize
	if c.touched == nil {
		c.touched = make([]uint64, (pages+63)/64)
	}
	for p := (r.Lo - c.Lo) / pageSize; p <= (r.Hi-1-c.Lo)/pageSize; p++ {
		c.touched[p/64] |= 1 << (p % 64)
	}
	c.used.add(r)
}
