package detour

import (
	"math/rand/v2"
	"testing"
)

// The set against a map, with as many entries as it was made for, and more that come and
// go: searches end, and what is in the memory is what is known here.
func TestNoting(t *testing.T) {
	const most = 200
	s, has := NewNoting(most), map[uint64]bool{}
	s.Addr = 1 << 20
	mem := make([]byte, s.Size())
	write := func(i int) {
		if i >= 0 {
			at, b := s.Word(i)
			copy(mem[at-s.Addr:], b)
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		at := 0x400000 + rnd.Uint64N(most*4)*16
		if len(has) < most && rnd.IntN(2) == 0 {
			write(s.Put(at))
			has[at] = s.Has(at)
		} else {
			write(s.Drop(at))
			delete(has, at)
		}
		if probe := 0x400000 + rnd.Uint64N(most*4)*16; s.Has(probe) != has[probe] {
			t.Fatalf("%#x: %v, want %v", probe, s.Has(probe), has[probe])
		}
	}
	if string(mem) != string(s.Bytes()) {
		t.Error("the memory differs")
	}
	for at, in := range has {
		if !in {
			t.Errorf("%#x did not fit", at)
		}
	}
}
