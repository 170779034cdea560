package order

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"kprobe/probe/results"
)

// TestOrder has the readers of three processes look in any order, at any pace:
// what comes out is in order of time, complete, and a copy.
func TestOrder(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := &Order[int]{}
		streams := []*Stream{{}, {}, {}}
		now := make([]uint64, len(streams))
		for i, tp := range streams {
			o.Join(tp)
			o.Join(tp) // again: another run
			now[i] = 1
		}
		if !o.Many() {
			t.Fatal("three are not many")
		}
		data := make([]byte, 8)
		put, got := 0, 0
		last := uint64(0)
		take := func(all bool) {
			for q := o.Next(all); q != nil; q = o.Next(all) {
				if q.Hit.Time < last {
					t.Fatalf("seed %d: %d after %d", seed, q.Hit.Time, last)
				}
				if string(q.Hit.Data) != fmt.Sprintf("%08d", q.Hit.Time) || q.Hit.PID != q.Probe {
					t.Fatalf("seed %d: the data of another hit: %q at %d", seed, q.Hit.Data, q.Hit.Time)
				}
				for i, tp := range streams {
					if !all && tp.until.Load() <= q.Hit.Time {
						t.Fatalf("seed %d: process %d may have an older one than %d", seed, i, q.Hit.Time)
					}
				}
				last = q.Hit.Time
				got++
				o.Done(q)
			}
			o.TellOldest()
		}
		for range 300 {
			i := rnd.IntN(len(streams))
			for range rnd.IntN(4) {
				now[i] += rnd.Uint64N(5)
				at := now[i] - rnd.Uint64N(now[i]-streams[i].until.Load()+1) // some come late
				copy(data, fmt.Sprintf("%08d", at))
				o.Put(streams[i], i, &results.Hit{Time: at, PID: i, Data: data}, at)
				put++
				if q := streams[i].Queued(); q == 0 || q > now[i] {
					t.Fatalf("seed %d: the oldest that waits is said to be %d, not %d or older", seed, q, now[i])
				}
			}
			now[i]++
			streams[i].Until(now[i])
			take(false)
		}
		if got == 0 {
			t.Errorf("seed %d: nothing came before the end", seed)
		}
		take(true)
		if got != put {
			t.Errorf("seed %d: %d of %d hits", seed, got, put)
		}
		for _, tp := range streams {
			if tp.Queued() != 0 {
				t.Errorf("seed %d: something waits still", seed)
			}
		}
		o.Clear()
		if o.Many() {
			t.Error("none are many")
		}
	}
}

// TestPart: nobody waits for a stream that has ended; what it gave comes in its turn.
func TestPart(t *testing.T) {
	o := &Order[string]{}
	ticks := 0
	a, b := &Stream{Tick: func() { ticks++ }}, &Stream{Tick: func() { ticks++ }}
	o.Join(a)
	if o.Many() {
		t.Error("one is many")
	}
	o.Join(b)
	o.Tick()
	if ticks != 2 || o.Joined() != 2 {
		t.Errorf("%d of %d streams were told", ticks, o.Joined())
	}
	o.Put(a, "a", &results.Hit{Time: 5}, 50)
	o.Put(b, "b", &results.Hit{Time: 5}, 51)
	o.Put(b, "c", &results.Hit{Time: 4}, 40)
	a.Until(5)
	b.Until(6)
	next := func(want string) {
		t.Helper()
		got := ""
		if q := o.Next(false); q != nil {
			got = q.Probe
			o.Done(q)
		}
		if got != want {
			t.Errorf("%q comes, want %q", got, want)
		}
	}
	next("c") // a may have one of 5
	next("")
	o.Part(b)
	o.Part(b)
	next("")
	a.Until(6)
	next("a") // of one time as they came
	next("b")
	next("")
	if !o.Many() {
		t.Error("what comes now would overtake what waits")
	}
	o.TellOldest()
	if a.Queued() != 0 {
		t.Error("something waits")
	}
}

// TestTimeStampZero: a hit whose time stamp is 0 waits, too.
func TestTimeStampZero(t *testing.T) {
	o := &Order[int]{}
	s := &Stream{}
	o.Join(s)
	o.Put(s, 1, &results.Hit{}, 0)
	if s.Queued() == 0 {
		t.Error("nothing waits")
	}
	o.TellOldest()
	if s.Queued() == 0 {
		t.Error("nothing waits any more")
	}
}
