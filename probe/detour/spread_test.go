package detour

import (
	"math/rand/v2"
	"testing"
)

// rowOf is the row at which the search for a slot begins.
func rowOf(k *Calls, slot uint64) int {
	return int(uint64(uint32(slot)*k.factor()) * uint64(k.Count) >> 32)
}

// Calls of threads whose stacks were known begin at rows of their own, wherever in 16 KB of stack they are.
func TestSpread(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		main, lib := 0x7ffc_0000_0000+rnd.Uint64N(1<<34)&^15, 0x7f00_0000_0000+rnd.Uint64N(1<<39)&^15
		for _, stacks := range [][]uint64{
			{main, lib},
			{main, lib, lib - stackApart},
			{lib, lib - 64<<10},
			{lib, lib - 144<<10, lib - 288<<10},
			{main, lib, lib - stackApart, lib - 2*stackApart},
		} {
			k := Calls{Count: max(10, 4*len(stacks))}
			if k.SetFactor(Spread(stacks)); k.Factor < lowFactor || k.Factor >= highFactor {
				t.Fatalf("stacks %#x: factor %d", stacks, k.Factor)
			}
			owner := map[int]int{}
			for range 1000 {
				n := rnd.IntN(len(stacks))
				row := rowOf(&k, stacks[n]-stackUsed/2+8*rnd.Uint64N(stackUsed/8))
				if other, ok := owner[row]; ok && other != n {
					t.Fatalf("stacks %#x, factor %d: %d and %d begin at row %d of %d", stacks, k.Factor, n, other, row, k.Count)
				}
				owner[row] = n
			}
		}
	}
}

// Stacks that glibc makes later, behind the known ones, get rows of their own, too.
func TestSpreadLater(t *testing.T) {
	const lib = 0x7f12_3456_7ee0
	k := Calls{Count: 16}
	k.SetFactor(Spread([]uint64{lib, lib - stackApart}))
	seen := map[int]int{}
	for n := range 8 {
		row := rowOf(&k, lib-uint64(n)*stackApart)
		if other, ok := seen[row]; ok {
			t.Errorf("factor %d: threads %d and %d begin at row %d of %d", k.Factor, other, n, row, k.Count)
		}
		seen[row] = n
	}
}

// One thread, a large table, Go's calls and those in common need no other factor.
func TestSpreadNot(t *testing.T) {
	two := []uint64{0x7ffc_1234_5678, 0x7f12_3456_7ee0}
	for _, x := range []struct {
		k      Calls
		stacks []uint64
	}{{Calls{Count: 10}, two[:1]}, {Calls{Count: fewRows + 1}, two}, {Calls{Count: 10, Go: true}, two}, {Calls{Count: 10, Common: true}, two}} {
		if x.k.SetFactor(Spread(x.stacks)); x.k.Factor != 0 || x.k.factor() != golden32u {
			t.Errorf("%+v", x.k)
		}
	}
}
