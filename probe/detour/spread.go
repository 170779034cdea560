package detour

import "slices"

// Stacks and rows
//
// Two threads whose calls begin at the same row of a table write the same cache line at each
// call and each return, which costs them three times what it costs one thread. If a table has
// ten rows, one pair of stacks in ten meets in this way. So the factor of a small table's hash
// is chosen by the stacks that there are. It is so small that the calls of a thread, whose slots
// lie close together, begin at one or two rows, and those of the threads at rows that are as far
// apart as possible. The calls of a recursion take the rows that follow.
//
// The row remains a function of the slot alone, so that each call with a slot finds the rows
// of those that were left with it, whichever thread or CPU noted them.

const (
	// fewRows is how many rows a table has at most whose calls may all begin at the same row.
	fewRows = 64
	// A factor from lowFactor to highFactor moves the first row by an eighth of the table to four
	// tables for a mebibyte of stack. Beyond midFactor one in sixteen is tried.
	lowFactor, midFactor, highFactor = 1 << 9, 1 << 12, 1 << 14
	// stackUsed is how far apart the slots of a thread are expected to lie.
	stackUsed = 16 << 10
	// stackApart is the distance of the stacks that glibc makes: 8 MiB and a guard page.
	stackApart = 8<<20 + 4096
	// mostStacks is how many stacks are looked at.
	mostStacks = 16
)

// Spread chooses a factor for tables' hashes by addresses in the stacks of the program's threads. It returns 0 if
// there is one thread at most: the factor that a table has anyway spreads a recursion.
//
// The first rows of the stacks are farthest apart with it. Among factors that are about as good, it
// is the one that is best for the stacks of later threads: the golden ratio spreads evenly what
// lies at equal distances.
func Spread(stacks []uint64) (factor uint32) {
	if len(stacks) < 2 {
		return 0
	}
	stacks = stacks[:min(len(stacks), mostStacks)]
	at := make([]uint32, len(stacks))
	apart := func(factor uint32) uint32 {
		for i, s := range stacks {
			at[i] = uint32(s) * factor
		}
		slices.Sort(at)
		least := ^uint32(0)
		for i := range at {
			least = min(least, at[(i+1)%len(at)]-at[i])
		}
		return least - min(least, factor*stackUsed)
	}
	next := func(f uint32) uint32 {
		if f < midFactor {
			return f + 1
		}
		return f + 16
	}
	most := uint32(0)
	for f := uint32(lowFactor); f < highFactor; f = next(f) {
		most = max(most, apart(f))
	}
	off := ^uint32(0)
	for f := uint32(lowFactor); f < highFactor; f = next(f) {
		if apart(f) < most-most/8 {
			continue
		}
		step := f * stackApart
		if d := min(step-golden32u, golden32u-step, step+golden32u, -step-golden32u); d < off {
			factor, off = f, d
		}
	}
	return factor
}

// SetFactor gives a table with few rows the factor that Spread has chosen.
func (k *Calls) SetFactor(factor uint32) {
	if !k.Go && !k.Common && k.Count <= fewRows {
		k.Factor = factor
	}
}

// factor is the factor by which slots are multiplied.
func (k *Calls) factor() uint32 {
	if k.Factor == 0 {
		return golden32u
	}
	return k.Factor
}
