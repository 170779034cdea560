package output

import "math/bits"

// A cell of a spread is one number below 2*subCells, and above it the numbers
// that have their first subBits+1 bits in common: the middle of a cell is less
// than 1/128 from every number in it.
const (
	subBits  = 6
	subCells = 1 << subBits
)

// spread counts how often numbers came, within 1 % of their value, in memory
// that their number doesn't change. The zero spread is empty. It is not safe
// for concurrent use.
type spread struct {
	count, sum, min, max uint64
	cells                []uint64
}

// add counts a number.
func (s *spread) add(v uint64) {
	if s.count == 0 || v < s.min {
		s.min = v
	}
	s.max = max(s.max, v)
	s.count++
	s.sum += v
	i := cellOf(v)
	if i >= len(s.cells) {
		s.cells = append(s.cells, make([]uint64, i+1-len(s.cells))...)
	}
	s.cells[i]++
}

// merge adds what another spread has counted.
func (s *spread) merge(o *spread) {
	if o.count == 0 {
		return
	}
	if s.count == 0 || o.min < s.min {
		s.min = o.min
	}
	s.max = max(s.max, o.max)
	s.count += o.count
	s.sum += o.sum
	if n := len(o.cells) - len(s.cells); n > 0 {
		s.cells = append(s.cells, make([]uint64, n)...)
	}
	for i, n := range o.cells {
		s.cells[i] += n
	}
}

// average is 0 for an empty spread.
func (s *spread) average() uint64 {
	if s.count == 0 {
		return 0
	}
	return (s.sum + s.count/2) / s.count
}

// percentile is the smallest number that p percent of all are not above (the
// nearest rank), as near as its cell tells; the ends are exact. It is 0 for an
// empty spread.
func (s *spread) percentile(p uint64) uint64 {
	hi, lo := bits.Mul64(s.count, p)
	rank, _ := bits.Div64(hi, lo, 100)
	if rank*100 < s.count*p || rank == 0 {
		rank++
	}
	switch rank {
	case 1:
		return s.min
	case s.count:
		return s.max
	}
	seen := uint64(0)
	for i, n := range s.cells {
		if seen += n; seen >= rank {
			from, to := cellRange(i)
			return min(max(from+(to-from)/2, s.min), s.max)
		}
	}
	return 0
}

// power is one step of a power-of-two histogram: how many numbers were from
// From to To, both included.
type power struct {
	From, To uint64
	Count    uint64
}

// powers is the histogram from the lowest step that has any to the highest.
func (s *spread) powers() []power {
	var out []power
	for i, n := range s.cells {
		if n == 0 {
			continue
		}
		from, _ := cellRange(i)
		k := bits.Len64(from)
		for len(out) == 0 || out[len(out)-1].From < low(k) {
			at := k
			if len(out) > 0 {
				at = bits.Len64(out[len(out)-1].From) + 1
			}
			out = append(out, power{From: low(at), To: high(at)})
		}
		out[len(out)-1].Count += n
	}
	return out
}

// low and high bound the numbers of k bits.
func low(k int) uint64 {
	if k == 0 {
		return 0
	}
	return 1 << (k - 1)
}

func high(k int) uint64 { return 1<<k - 1 }

// cellOf is the cell of a number.
func cellOf(v uint64) int {
	if v < 2*subCells {
		return int(v)
	}
	e := bits.Len64(v) - subBits - 1
	return (e+1)*subCells + int(v>>e) - subCells
}

// cellRange is the smallest and the largest number of a cell.
func cellRange(i int) (from, to uint64) {
	if i < 2*subCells {
		return uint64(i), uint64(i)
	}
	e := i/subCells - 1
	from = uint64(i%subCells+subCells) << e
	return from, from + 1<<e - 1
}
