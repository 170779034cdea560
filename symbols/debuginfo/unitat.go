package debuginfo

import (
	"slices"
	"sort"
)

// UnitAt finds the unit that has the code at an address, or nil. Of a split unit it returns
// the part with the entries, if that was found.
func (d *Data) UnitAt(pc uint64) *Unit {
	u := d.skeletonAt(pc)
	if u == nil {
		return nil
	}
	return u.full()
}

// fewQuestions is how many addresses are looked up one by one before sorting all ranges is
// faster. A large program has millions of ranges.
const fewQuestions = 4

func (d *Data) skeletonAt(pc uint64) *Unit {
	if l := d.last.Load(); l != nil && l.Low <= pc && pc < l.High {
		return l.unit // questions about one function often follow each other
	}
	if x := d.ready(); x != nil {
		var found *Unit
		spanAt(x.units, pc, func(off uint64) bool {
			found = d.unitFrom(off)
			return found != nil
		})
		return found
	}
	if u, ok := d.located.Load(pc); ok {
		return u.(*Unit)
	}
	if d.asked.Add(1) <= fewQuestions {
		if found := d.locate([]uint64{pc})[0]; found.unit != nil {
			d.last.Store(&found)
			return found.unit
		}
		return nil
	}
	list := d.unitRanges()
	i := sort.Search(len(list), func(i int) bool { return list[i].Low > pc }) - 1
	for steps := 0; i >= 0 && list[i].reach > pc && steps < 4096; i, steps = i-1, steps+1 {
		if pc < list[i].High {
			return list[i].unit
		}
	}
	return nil
}

// Locate finds the units of several addresses at once, in preparation for questions about
// them.
func (d *Data) Locate(pcs []uint64) {
	pcs = slices.Compact(slices.Sorted(slices.Values(pcs)))
	if len(pcs) <= fewQuestions || len(pcs) > maxLocated || d.ready() != nil || d.asked.Load() > fewQuestions {
		return
	}
	for i, r := range d.locate(pcs) {
		if r.unit != nil {
			d.located.Store(pcs[i], r.unit)
		}
	}
}

// Limits on Locate: how many addresses it takes before the table is faster, and in how many ranges
// an address may be. Few units share code.
const (
	maxLocated = 512
	maxCovers  = 1 << 24
)

// locate finds the unit of each address. If several units have it, it takes the one whose
// range starts last, as the table does. Addresses are in order, each once.
func (d *Data) locate(pcs []uint64) []unitRange {
	out := make([]unitRange, len(pcs))
	covers := 0
	d.eachRange(func(u *Unit, r Range) {
		if r.Low > pcs[len(pcs)-1] || r.High <= pcs[0] {
			return
		}
		i, _ := slices.BinarySearch(pcs, r.Low)
		for ; i < len(pcs) && pcs[i] < r.High && covers < maxCovers; i++ {
			covers++
			if b := &out[i]; b.unit == nil || r.Low > b.Low || r.Low == b.Low && u.off > b.unit.off {
				*b = unitRange{Range: r, unit: u}
			}
		}
	})
	if covers == maxCovers {
		clear(out)
	}
	return out
}
