package detour

import (
	"math/bits"
	"slices"

	"kprobe/probe/asm"
)

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

// golden and golden32 are the factors of the hash that spreads slots, which differ in few bits, over the rows
// (Knuth, The Art of Computer Programming, vol. 3, 6.4). golden32u is golden32 without a sign.
const (
	golden    = 0x9e3779b97f4a7c15
	golden32  = 0x9e3779b1 - 1<<32
	golden32u = uint32(golden32 & (1<<32 - 1))
)

// hash loads the head of the calls into SI, and into CX the row at which the search for the call DI begins.
// Changes AX.
func (e *calling) hash() {
	b := e.b
	b.spread(e.k.Go, func() { b.ImulImm(asm.W32, asm.AX, asm.DI, int32(e.k.factor())) })
	if log := uint8(bits.TrailingZeros(uint(e.k.Count))); 1<<log == e.k.Count {
		// Two steps less, which the exchange at an entry waits for.
		b.ShiftImm(asm.Shr, asm.W32, asm.AX, 32-log-e.k.Shift)
		b.OpImm(asm.And, asm.W32, asm.AX, -1<<e.k.Shift)
	} else {
		b.ImulImm(asm.W64, asm.AX, asm.AX, int32(e.k.Count))
		b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
		b.ShiftImm(asm.Shl, asm.W32, asm.AX, e.k.Shift)
	}
	b.MovAbs(asm.SI, e.k.Addr)
	b.Lea(asm.CX, asm.Indexed(asm.SI, asm.AX, 1, callsHead))
}

// spread computes a hash of 32 bits of the call's key DI into AX. slot emits it for a slot: the product with the
// table's factor. The lower 32 bits suffice, because most stacks lie within 4 GB.
func (b *builder) spread(ofGo bool, slot func()) {
	if !ofGo {
		slot()
		return
	}
	b.MovImm(asm.AX, golden)
	b.Imul(asm.W64, asm.AX, asm.DI)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
}
