package ring

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// oldestOf is oldestLeft, found by looking through everything; marks are all there were.
func oldestOf(ln *lane, marks []mark) uint64 {
	floor := func(pos uint64) (tsc uint64) {
		for _, m := range marks {
			if m.head <= pos {
				tsc = m.tsc
			}
		}
		return tsc
	}
	oldest := ^uint64(0)
	for pos, head := ln.read, ln.m.load64(ln.head); pos != head; {
		id, units, committed := SplitState(ln.m.load32(ln.at(pos)))
		switch {
		case units == 0:
			return min(oldest, floor(pos))
		case !committed:
			oldest = min(oldest, floor(pos))
		case id != 0:
			oldest = min(oldest, ln.m.load64(ln.at(pos)+TimeOff))
		}
		pos += uint64(units) * Unit
	}
	return oldest
}

// TestOldestLeft compares what is remembered of records left in a ring with what
// lies there, while records of any size come, some finished late and out of order,
// and are taken; and wants a flood to be looked through about once.
func TestOldestLeft(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l, err := New(Params{CPUs: 1, MaxProbes: 100, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 4})
	if err != nil {
		t.Fatal(err)
	}
	x := newBenchOf(t, l, make([]byte, l.Size), Options{})
	ln := &x.r.lanes[0]
	open, order := map[int]func(){}, []int(nil)
	left, remembered := 0, 0
	marks := slices.Clone(ln.marks)
	for round := range 2400 {
		for range rng.IntN(120) {
			n := rng.IntN(60) * 8
			r, ok := x.p.Reserve(0, 1+uint32(rng.IntN(9)), n)
			if !ok {
				break
			}
			at := x.now() - uint64(rng.IntN(20))
			finish := func() { r.Fill(7, at, make([]byte, n)); r.Commit() }
			if rng.IntN(300) > 0 {
				finish()
			} else {
				open[len(order)] = finish
				order = append(order, round)
			}
		}
		for i, finish := range open {
			if round-order[i] > 3 {
				finish()
				delete(open, i)
			}
		}
		if fills := round/200%2 == 0; fills && rng.IntN(100) > 0 {
			continue
		}
		start := x.now()
		marks = append(marks, mark{ln.m.load64(ln.head), start})
		ln.take(x.clock.Mono(), start, false)
		x.r.settle(ln, x.clock.Mono(), start, false)
		if ln.more {
			left++
			if got, want := ln.oldestLeft(), oldestOf(ln, marks); got != want {
				t.Fatalf("round %d: %d, want %d", round, got, want)
			}
			for _, p := range ln.left {
				if p.whole {
					remembered++
				}
			}
		}
		if ln.corrupt > 0 {
			t.Fatalf("round %d: the ring is taken for corrupt", round)
		}
		ln.publish()
		ln.q, ln.qh, ln.buf = ln.q[:0], 0, ln.buf[:0]
	}
	if left < 25 || remembered < left {
		t.Errorf("%d looks left records, in %d parts that were remembered", left, remembered)
	}
}
