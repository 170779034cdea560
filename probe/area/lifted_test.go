package area

import (
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe/probe/memory"
	"kprobe/probe/ring"
)

// TestLiftedBytes asks for every byte near many writes, settled and fresh ones, and compares with what the writes say.
func TestLiftedBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var x lifted
	var all []*Write
	add := func(n int) {
		for range n {
			w := &Write{Change: memory.Change{At: 0x1000 + uint64(r.IntN(20_000)), Wrote: r.IntN(4) > 0}}
			for range 1 + r.IntN(ring.SiteBytes) {
				w.Old, w.New = append(w.Old, byte(r.IntN(3))), append(w.New, byte(r.IntN(3)))
			}
			all = append(all, w)
			x.note(w)
		}
	}
	check := func() {
		t.Helper()
		for a := uint64(0xf80); a < 0x1000+20_080; a += 1 + uint64(r.IntN(7)) {
			want := slices.ContainsFunc(all, func(w *Write) bool { return w.lifted(a) })
			if got := x.has(a); got != want {
				t.Fatalf("%#x: %v, want %v", a, got, want)
			}
		}
		for _, a := range []uint64{0, 5, ^uint64(0)} {
			if x.has(a) {
				t.Errorf("%#x is found", a)
			}
		}
	}
	check()
	add(1000)
	x.settle()
	check()
	if len(x.fresh) != 0 {
		t.Errorf("%d are fresh", len(x.fresh))
	}
	add(mostFresh)
	if before := len(x.fresh); before == 0 || before > mostFresh {
		t.Fatalf("%d are fresh", before)
	}
	settled := len(x.settled)
	check()
	if len(x.settled) != settled {
		t.Error("few were sorted")
	}
	add(1000)
	check()
}
