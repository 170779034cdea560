package ring

import (
	"slices"
	"testing"
	"time"
)

// much is a full ring, and few records in another. In the first one stands a record
// that began before those behind it and was finished after them, where the first
// look ends.
func much(t *testing.T) (x *bench, times []uint64) {
	t.Helper()
	l, err := New(Params{CPUs: 2, MaxProbes: 100, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 4})
	if err != nil {
		t.Fatal(err)
	}
	x = newBenchOf(t, l, make([]byte, l.Size), Options{})
	const all = DefaultRingSize / HeaderSize
	const outer, nested = mostTaken/HeaderSize - 3, 50
	for i := 0; i < all-1; i++ {
		if i == outer {
			r, ok := x.p.Reserve(0, 3, 0)
			if !ok {
				t.Fatal("no room")
			}
			for range nested {
				times = append(times, x.now())
				x.put(t, 0, 2, 1, times[len(times)-1], "")
			}
			times = append(times, x.now())
			r.Fill(1, times[len(times)-1], nil)
			r.Commit()
			i += nested
			continue
		}
		times = append(times, x.now())
		x.put(t, 0, 1, 1, times[len(times)-1], "")
		if i%1000 == 0 {
			times = append(times, x.now())
			x.put(t, 1, 4, 2, times[len(times)-1], "")
		}
	}
	return x, times
}

// TestMuchAtOnce wants a full ring to be taken in parts, with little memory, all of
// it in order of time, and counted once, whoever looks in between.
func TestMuchAtOnce(t *testing.T) {
	x, want := much(t)
	var g []got
	looks := 0
	for ; len(g) < len(want) && looks < 100; looks++ {
		x.r.Look()
		if x.r.LookStale(); looks == 3 {
			x.r.Look()
		}
		hits := uint64(0)
		for id := range uint32(5) {
			hits += x.c.Probe(id).Hits
		}
		if hits != uint64(len(want)) {
			t.Fatalf("look %d: %d hits of %d", looks, hits, len(want))
		}
		g = append(g, x.poll(t, false)...)
		if n := cap(x.r.lanes[0].q); n > 3*mostTaken/HeaderSize {
			t.Fatalf("look %d: room for %d records is taken", looks, n)
		}
	}
	var times []uint64
	for i := range g {
		times = append(times, g[i].TSC)
	}
	if !slices.Equal(times, want) {
		t.Fatalf("%d records, want %d in order; in order: %v", len(g), len(want), slices.IsSorted(times))
	}
	if s := x.r.Stats(); s.Late != 0 || looks < 4 || !x.free(0) {
		t.Errorf("%d looks, %+v, the room is clear: %v", looks, s, x.free(0))
	}
	if len(x.r.tally.ahead.dirty) != 0 {
		t.Errorf("%d probes are counted ahead", len(x.r.tally.ahead.dirty))
	}
}

// TestMuchAtTheEnd is the same for Finish, which gives all at once, also with a
// record that nobody finishes.
func TestMuchAtTheEnd(t *testing.T) {
	x, want := much(t)
	if _, ok := x.p.Reserve(1, 4, 0); !ok {
		t.Fatal("no room")
	}
	g := x.poll(t, true)
	if len(g) != len(want) || !slices.IsSortedFunc(g, func(a, b got) int { return int(int64(a.TSC - b.TSC)) }) {
		t.Errorf("%d records, want %d in order", len(g), len(want))
	}
	if s := x.r.Stats(); s.Late != 0 || s.Abandoned != 1 {
		t.Errorf("%+v", s)
	}
	if n := cap(x.r.lanes[0].q); n > 3*mostTaken/HeaderSize {
		t.Errorf("room for %d records is taken", n)
	}
}

// TestMuchWithAHole wants an unfinished record in the part that is left in the ring
// to hold younger ones of the other ring up.
func TestMuchWithAHole(t *testing.T) {
	l, err := New(Params{CPUs: 2, MaxProbes: 100, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 4})
	if err != nil {
		t.Fatal(err)
	}
	x := newBenchOf(t, l, make([]byte, l.Size), Options{})
	const part = mostTaken / HeaderSize
	for range part + 10 {
		x.put(t, 0, 1, 1, x.now(), "")
	}
	r, _ := x.p.Reserve(0, 1, 0)
	at := x.now()
	x.put(t, 1, 1, 3, x.now(), "")
	var g []got
	for range 3 {
		g = append(g, x.poll(t, false)...)
	}
	if slices.Contains(tids(g), 3) {
		t.Fatal("a record came before an older one")
	}
	r.Fill(2, at, nil)
	r.Commit()
	g = append(g, x.poll(t, false)...)
	if n := len(g); n != part+12 || g[n-2].TID != 2 || g[n-1].TID != 3 {
		t.Errorf("%d records, the last %v", n, tids(g[max(0, n-2):]))
	}
	if s := x.r.Stats(); s.Late != 0 {
		t.Errorf("%+v", s)
	}
}

// TestMuchInTurns wants records of a ring that are younger than all of another, as a
// thread leaves them that goes from one CPU to the next, to wait in their ring; but
// not where one that nobody finishes is among them.
func TestMuchInTurns(t *testing.T) {
	for _, unfinished := range []bool{false, true} {
		l, err := New(Params{CPUs: 2, MaxProbes: 100, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 4})
		if err != nil {
			t.Fatal(err)
		}
		x := newBenchOf(t, l, make([]byte, l.Size), Options{})
		want := 0
		for cpu := range 2 {
			for i := range DefaultRingSize/HeaderSize - 1 {
				if unfinished && cpu == 1 && i == 3*mostTaken/HeaderSize {
					x.p.Reserve(1, 1, 0)
					continue
				}
				x.put(t, cpu, 1, 1, x.now(), "")
				want++
			}
		}
		var g []got
		most := 0
		for looks := 0; len(g) < want && looks < 1000; looks++ {
			x.clock.advance(int(time.Millisecond))
			g = append(g, x.poll(t, false)...)
			most = max(most, cap(x.r.lanes[0].q), cap(x.r.lanes[1].q))
		}
		if len(g) != want || !slices.IsSortedFunc(g, func(a, b got) int { return int(int64(a.TSC - b.TSC)) }) {
			t.Errorf("%d records, want %d in order", len(g), want)
		}
		if s := x.r.Stats(); s.Late != 0 {
			t.Errorf("%+v", s)
		}
		if !unfinished && most > 3*mostTaken/HeaderSize {
			t.Errorf("room for %d records is taken", most)
		}
	}
}

// TestMuchBehindOneThatIsWritten wants records to be passed on while the ring is never seen
// empty and its last record is always being written: none of them can be older than the look
// before it was reserved.
func TestMuchBehindOneThatIsWritten(t *testing.T) {
	l, err := New(Params{CPUs: 2, MaxProbes: 100, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 4})
	if err != nil {
		t.Fatal(err)
	}
	x := newBenchOf(t, l, make([]byte, l.Size), Options{})
	const part = mostTaken / HeaderSize
	for range 2 * part {
		x.put(t, 0, 1, 1, x.now(), "")
	}
	put := 2 * part
	var finish func()
	var g []got
	for round := range 40 {
		for range part - 1 {
			x.put(t, 0, 1, 1, x.now(), "")
		}
		r, ok := x.p.Reserve(0, 1, 0)
		if !ok {
			t.Fatal("no room")
		}
		if finish != nil {
			finish()
		}
		at := x.now()
		finish = func() { r.Fill(1, at, nil); r.Commit() }
		put += part
		g = append(g, x.poll(t, false)...)
		if behind := put - len(g); behind > 5*part {
			t.Fatalf("round %d: %d records are behind", round, behind)
		}
	}
	if n := cap(x.r.lanes[0].q); n > 5*part {
		t.Errorf("room for %d records is taken", n)
	}
	finish()
	for range 10 {
		g = append(g, x.poll(t, false)...)
	}
	if len(g) != put || !slices.IsSortedFunc(g, func(a, b got) int { return int(int64(a.TSC - b.TSC)) }) {
		t.Errorf("%d records, want %d in order", len(g), put)
	}
}
