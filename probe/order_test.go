package probe

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestOrder has the readers of three processes look in any order, at any pace:
// what comes out is in order of time, complete, and a copy.
func TestOrder(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := &order{}
		taps := []*tap{{}, {}, {}}
		var probes []*placed
		now := make([]uint64, len(taps))
		for i, tp := range taps {
			o.join(tp)
			o.join(tp) // again: another run
			probes = append(probes, &placed{tap: tp})
			now[i] = 1
		}
		if !o.many() {
			t.Fatal("three are not many")
		}
		data := make([]byte, 8)
		put, got := 0, 0
		last := uint64(0)
		take := func(all bool) {
			for q := o.next(all); q != nil; q = o.next(all) {
				if q.hit.Time < last {
					t.Fatalf("seed %d: %d after %d", seed, q.hit.Time, last)
				}
				if string(q.hit.Data) != fmt.Sprintf("%08d", q.hit.Time) {
					t.Fatalf("seed %d: the data of another hit: %q at %d", seed, q.hit.Data, q.hit.Time)
				}
				for i, tp := range taps {
					if !all && tp.until.Load() <= q.hit.Time {
						t.Fatalf("seed %d: process %d may have an older one than %d", seed, i, q.hit.Time)
					}
				}
				last = q.hit.Time
				got++
				o.done(q)
			}
			o.settle()
		}
		for range 300 {
			i := rnd.IntN(len(taps))
			for range rnd.IntN(4) {
				now[i] += rnd.Uint64N(5)
				copy(data, fmt.Sprintf("%08d", now[i]))
				o.put(probes[i], &Hit{Time: now[i], Data: data}, now[i])
				put++
				if at := taps[i].queued.Load(); at == 0 || at > now[i] {
					t.Fatalf("seed %d: the oldest that waits is said to be %d, not %d or older", seed, at, now[i])
				}
			}
			now[i]++
			taps[i].until.Store(now[i])
			take(false)
		}
		if waits := len(o.queue); waits == put {
			t.Errorf("seed %d: nothing came before the end", seed)
		}
		take(true)
		if got != put {
			t.Errorf("seed %d: %d of %d hits", seed, got, put)
		}
		for _, tp := range taps {
			if tp.queued.Load() != 0 {
				t.Errorf("seed %d: something waits still", seed)
			}
		}
		o.clear()
		if o.many() {
			t.Error("none are many")
		}
	}
}
