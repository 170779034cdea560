// Package spread counts the distribution of numbers, for percentiles.
package spread

import "math/bits"

// A cell of a spread is one number below 2*subCells, and above it the numbers
// that have their first subBits+1 bits in common: the middle of a cell is less
// than 1/128 from every number in it.
const (
	subBits  = 6
	subCells = 1 << subBits
)

// Spread counts how often numbers came, within 1 % of their value, in memory
// that their number doesn't change. The zero Spread is empty. It is not safe
// for concurrent use.
type Spread struct {
	Count, Sum, Min, Max uint64
	cells                []uint64
}

// Add counts a number.
func (s *Spread) Add(v uint64) {
	if s.Count == 0 || v < s.Min {
		s.Min = v
	}
	s.Max = max(s.Max, v)
	s.Count++
	s.Sum += v
	i := cellOf(v)
	if i >= len(s.cells) {
		s.cells = append(s.cells, make([]uint64, i+1-len(s.cells))...)
	}
	s.cells[i]++
}

// Grow has a number that was added be a larger one.
func (s *Spread) Grow(from, to uint64) {
	s.Add(to)
	s.Count--
	s.Sum -= from
	s.cells[cellOf(from)]--
	switch {
	case s.Count == 1:
		s.Min, s.Max = to, to
	case from == s.Min: // the least of the others is about there
		for i, n := range s.cells {
			if n > 0 {
				s.Min, _ = cellRange(i)
				break
			}
		}
		s.Min = max(s.Min, from)
	}
}

// Of is what was counted elsewhere, in cells of the same bounds.
func Of(count, sum, least, most uint64, cells []uint64) *Spread {
	return &Spread{Count: count, Sum: sum, Min: least, Max: most, cells: cells}
}

// Merge adds what another spread has counted.
func (s *Spread) Merge(o *Spread) {
	if o.Count == 0 {
		return
	}
	if s.Count == 0 || o.Min < s.Min {
		s.Min = o.Min
	}
	s.Max = max(s.Max, o.Max)
	s.Count += o.Count
	s.Sum += o.Sum
	if n := len(o.cells) - len(s.cells); n > 0 {
		s.cells = append(s.cells, make([]uint64, n)...)
	}
	for i, n := range o.cells {
		s.cells[i] += n
	}
}

// Average is 0 for an empty Spread.
func (s *Spread) Average() uint64 {
	if s.Count == 0 {
		return 0
	}
	return (s.Sum + s.Count/2) / s.Count
}

// Percentile is the smallest number that p percent of all are not above (the
// nearest rank), as near as its cell tells; the ends are exact. It is 0 for an
// empty Spread.
func (s *Spread) Percentile(p uint64) uint64 {
	hi, lo := bits.Mul64(s.Count, p)
	rank, _ := bits.Div64(hi, lo, 100)
	if rank*100 < s.Count*p || rank == 0 {
		rank++
	}
	switch rank {
	case 1:
		return s.Min
	case s.Count:
		return s.Max
	}
	seen := uint64(0)
	for i, n := range s.cells {
		if seen += n; seen >= rank {
			from, to := cellRange(i)
			return min(max(from+(to-from)/2, s.Min), s.Max)
		}
	}
	return 0
}

// Power is one step of a power-of-two histogram: how many numbers were from
// From to To, both included.
type Power struct {
	From, To uint64
	Count    uint64
}

// Powers is the histogram from the lowest step that has any to the highest.
func (s *Spread) Powers() []Power {
	var out []Power
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
			out = append(out, Power{From: low(at), To: high(at)})
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

// Cell is how many numbers were from From to To, both included: the bounds are less than
// 1/64 apart.
type Cell struct {
	From, To uint64
	Count    uint64
}

// Cells gives the cells that have any, from the lowest on.
func (s *Spread) Cells(yield func(Cell) bool) {
	for i, n := range s.cells {
		if from, to := cellRange(i); n > 0 && !yield(Cell{from, to, n}) {
			return
		}
	}
}
