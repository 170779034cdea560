package survey

import (
	"math/rand/v2"
	"sort"
	"testing"

	"kprobe/symbols"
)

func TestFinder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		n    int
		most uint64 // from one start to the next
	}{{0, 1}, {1, 1}, {2, 100}, {500, 40}, {500, 900}, {500, 5000}, {20, 1 << 30}} {
		var spans []span
		at := symbols.Vaddr(0x1234)
		for range c.n {
			spans = append(spans, span{lo: at, hi: at + 1})
			at += 1 + symbols.Vaddr(rnd.Uint64N(c.most))
		}
		f := newFinder(spans)
		if far := c.most > 4*pageSize; c.n > 1 && (f.pages == nil) != far {
			t.Errorf("%d spans up to %d bytes apart: %d pages", c.n, c.most, len(f.pages))
		}
		look := func(v symbols.Vaddr) {
			t.Helper()
			want := int32(sort.Search(len(spans), func(i int) bool { return spans[i].lo > v })) - 1
			if got := f.at(v); got != want {
				t.Errorf("%d spans up to %d bytes apart: at %#x is %d, want %d", c.n, c.most, v, got, want)
			}
		}
		for _, s := range spans {
			look(s.lo - 1)
			look(s.lo)
			look(s.lo + 1)
		}
		for _, v := range []symbols.Vaddr{0, 0x1233, at, at + pageSize, at + 100*pageSize, ^symbols.Vaddr(0)} {
			look(v)
		}
		for range 1000 {
			look(symbols.Vaddr(rnd.Uint64N(uint64(at) * 2)))
		}
	}
}

func TestWaysJump(t *testing.T) {
	w := newWays(1)
	for _, c := range []struct{ from, want int32 }{{nowhere, nowhere}, {3, 3}, {3, 3}, {nowhere, 3}, {4, mixed}, {3, mixed}, {nowhere, mixed}} {
		if w.jump(c.from, 0); w.from[0] != c.want {
			t.Errorf("after a jump from %d: %d, want %d", c.from, w.from[0], c.want)
		}
	}
}
