package ring

import "math/bits"

// Rows of bins
//
// If only the distribution of one number is wanted, a detour counts its hits by that number and
// leaves no record, so a full ring loses none of them. Each such probe has a row in the area of
// every CPU, after the counters. Whoever adds probes allocates the rows. A reader adds up the
// rows of all CPUs. A number that has no bin in its form leaves a record, as any hit does, and
// is counted from that.
//
// What is in the bins is in CounterHits, too. A bin is counted first: if a thread is killed
// between the two, its hit is in the bin alone.

// Form says which bin a number has.
type Form uint8

const (
	// FormFine has a bin for each number below 128, and 64 bins for each power of two
	// above: a number is within 1 % of its bin's middle. The row also has the sum, the
	// smallest and the largest of the numbers.
	FormFine Form = iota
	// FormLog2 has a bin for each power of two: n is the number of the first power that is
	// not below the value. 0 and 1 have bin 0.
	FormLog2
	// FormShift has bins that are all 1<<Shift wide.
	FormShift
)

// The row of a probe, in bytes from its start. The smallest number is stored as the largest
// complement, so that zeros are an empty row.
const (
	BinSum   = 0
	BinLeast = 8  // the largest complement
	BinMost  = 16 // the largest
	BinsOff  = 64 // the bins, u64 each

	// BinCells is how many bins a row has. FormFine has none for numbers from 1<<FineBits
	// on.
	BinCells = (FineBits-fineSub)*fineCells + fineCells
	FineBits = 42
	BinRow   = BinsOff + 8*BinCells

	fineSub   = 6
	fineCells = 1 << fineSub
)

// Bin returns a number's bin in a form; false if it has none. shift is FormShift's.
func (f Form) Bin(v uint64, shift uint8) (int, bool) {
	n := v
	switch f {
	case FormLog2:
		n = uint64(bits.Len64(v - min(v, 1)))
	case FormShift:
		n = v >> shift
	default:
		if v >= 2*fineCells {
			e := bits.Len64(v) - fineSub - 1
			n = uint64(e)*fineCells + v>>e
		}
	}
	return int(min(n, BinCells)), n < BinCells
}

// Bins is a row, summed over the CPUs.
type Bins struct {
	Count uint64 // of all bins
	// Sum, Least and Most are for FormFine. Least and Most are 0 if Count is. If a thread
	// was killed while it counted, they may lag behind the bins.
	Sum, Least, Most uint64
	Cells            []uint64 // up to the last that isn't empty
}

// Add adds another row of the same form.
func (x *Bins) Add(y *Bins) {
	if y.Count == 0 {
		return
	}
	if x.Count == 0 || y.Least < x.Least {
		x.Least = y.Least
	}
	x.Most = max(x.Most, y.Most)
	x.Count += y.Count
	x.Sum += y.Sum
	if n := len(y.Cells) - len(x.Cells); n > 0 {
		x.Cells = append(x.Cells, make([]uint64, n)...)
	}
	for i, n := range y.Cells {
		x.Cells[i] += n
	}
}

// RowOff is where a row starts in a CPU's area.
func (l *Layout) RowOff(row int) int64 { return l.rowsOff() + int64(row)*BinRow }

func (l *Layout) rowsOff() int64 {
	return (CountersOff + (int64(l.MaxProbes)+1)*CounterSize + 63) &^ 63
}

// Bins adds up what is counted in a row.
func (c *Counters) Bins(row int) Bins {
	var out Bins
	if row < 0 || row >= c.l.Rows {
		return out
	}
	cells := make([]uint64, BinCells)
	least, used := uint64(0), 0
	for cpu := range c.l.Areas() {
		at := c.l.Area(cpu) + c.l.RowOff(row)
		for i := range cells {
			n := c.m.load64(at + BinsOff + int64(8*i))
			if n > 0 {
				used = max(used, i+1)
			}
			cells[i] += n
			out.Count += n
		}
		out.Sum += c.m.load64(at + BinSum)
		out.Most = max(out.Most, c.m.load64(at+BinMost))
		least = max(least, c.m.load64(at+BinLeast))
	}
	if out.Cells = cells[:used]; out.Count > 0 {
		out.Least = ^least
	}
	return out
}

// ClearBins empties a row that is about to be reused. No detour may count in it any more.
func (c *Counters) ClearBins(row int) {
	for cpu := range c.l.Areas() {
		for off := int64(0); off < BinRow; off += 8 {
			if at := c.l.Area(cpu) + c.l.RowOff(row) + off; c.m.load64(at) != 0 {
				c.m.store64(at, 0) // a page that nobody has touched stays away
			}
		}
	}
}
