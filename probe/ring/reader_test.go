package ring

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func (x *bench) put(t testing.TB, cpu int, id, tid uint32, tsc uint64, data string) {
	t.Helper()
	if ok, err := x.p.Record(cpu, id, tid, tsc, []byte(data)); !ok || err != nil {
		t.Fatalf("record: %v, %v", ok, err)
	}
}

func TestRecordsComeBack(t *testing.T) {
	x := newBench(t, 2, Options{})
	at := x.now()
	x.put(t, 1, 7, 41, at, "12345678")
	g := x.poll(t, false)
	if want := []got{{7, 41, 1, at, "12345678"}}; !slices.Equal(g, want) {
		t.Fatalf("got %+v, want %+v", g, want)
	}
	if g := x.poll(t, false); len(g) != 0 {
		t.Fatalf("again: %+v", g)
	}
	if !x.free(1) {
		t.Error("the room is not cleared")
	}
	if c := x.c.Probe(7); c != (Counts{Hits: 1, Recorded: 1}) {
		t.Errorf("counts %+v", c)
	}
}

func TestMergedByTime(t *testing.T) {
	x := newBench(t, 4, Options{})
	base := x.now()
	// Thread ids say the order.
	for _, r := range []struct {
		cpu int
		n   uint32
	}{{2, 1}, {0, 2}, {0, 3}, {1, 4}, {3, 6}, {0, 7}, {0, 9}, {2, 8}, {1, 5}} {
		x.put(t, r.cpu, 1, r.n, base+uint64(r.n), "")
	}
	x.clock.advance(100)
	wantTIDs(t, x.poll(t, false), 1, 2, 3, 4, 5, 6, 7, 8, 9)
	if s := x.r.Stats(); s.Late != 0 || s.Records != 9 {
		t.Errorf("stats %+v", s)
	}
}

// A signal handler's record stands behind the one that it interrupted and is
// older.
func TestNestedRecord(t *testing.T) {
	x := newBench(t, 1, Options{})
	outer, ok := x.p.Reserve(0, 1, 0)
	if !ok {
		t.Fatal("no room")
	}
	x.put(t, 0, 2, 2, x.now(), "")
	outer.Fill(1, x.now(), nil)
	outer.Commit()
	wantTIDs(t, x.poll(t, false), 2, 1)
}

// Far out of order: more than push looks back.
func TestLongUnfinishedRecordIsSortedIn(t *testing.T) {
	x := newBench(t, 1, Options{Lateness: time.Second})
	r, _ := x.p.Reserve(0, 1, 0)
	at := x.now()
	var want []uint32
	for i := range uint32(5 * near) {
		x.put(t, 0, 1, 10+i, x.now(), "")
		want = append(want, 10+i)
	}
	if g := x.poll(t, false); len(g) != 0 {
		t.Fatalf("%d records came before an older one", len(g))
	}
	r.Fill(1, at, nil)
	r.Commit()
	wantTIDs(t, x.poll(t, false), append([]uint32{1}, want...)...)
	if x.r.Stats().Late != 0 {
		t.Errorf("stats %+v", x.r.Stats())
	}
}

func TestUnfinishedRecordHoldsOthersUpOnlySoLong(t *testing.T) {
	x := newBench(t, 2, Options{Lateness: time.Millisecond})
	x.put(t, 0, 1, 1, x.now(), "")
	wantTIDs(t, x.poll(t, false), 1)
	r, _ := x.p.Reserve(0, 1, 8)
	at := x.now()
	x.put(t, 0, 1, 3, x.now(), "")
	x.put(t, 1, 1, 4, x.now(), "")
	if g := x.poll(t, false); len(g) != 0 {
		t.Fatalf("records %v came before an older one", tids(g))
	}
	x.clock.advance(int(time.Millisecond))
	wantTIDs(t, x.poll(t, false), 3, 4)
	r.Fill(2, at, []byte("finished"))
	r.Commit()
	wantTIDs(t, x.poll(t, false), 2)
	if s := x.r.Stats(); s.Late != 1 || s.Abandoned != 0 {
		t.Errorf("stats %+v", s)
	}
	if !x.free(0) {
		t.Error("the room is not cleared")
	}
}

func TestShortCommit(t *testing.T) {
	x := newBench(t, 1, Options{})
	for _, n := range []int{0, 1, 8, 32, 40} {
		r, ok := x.p.Reserve(0, 3, 40)
		if !ok {
			t.Fatal("no room")
		}
		r.Fill(5, x.now(), []byte("0123456789012345678901234567890123456789"))
		r.CommitShort(n)
		g := x.poll(t, false)
		if len(g) != 1 || len(g[0].Data) != (n+7)/8*8 {
			t.Fatalf("commit of %d: %+v", n, g)
		}
	}
	if !x.free(0) {
		t.Error("the room is not cleared")
	}
}

func TestFullRingDropsAndCounts(t *testing.T) {
	x := newBench(t, 1, Options{})
	const n = 3000 // 24 bytes each: more than the ring holds
	stored := uint64(0)
	for range n {
		if ok, err := x.p.Record(0, 9, 1, x.now(), u64(1)); err != nil {
			t.Fatal(err)
		} else if ok {
			stored++
		}
	}
	if want := uint64(MinRingSize / 24); stored != want {
		t.Errorf("%d records in the ring, want %d", stored, want)
	}
	if g := x.poll(t, false); uint64(len(g)) != stored {
		t.Errorf("read %d of %d", len(g), stored)
	}
	if c := x.c.Probe(9); c != (Counts{Hits: n, Lost: n - stored, Recorded: stored}) || c.Pending() != 0 {
		t.Errorf("counts %+v", c)
	}
	x.put(t, 0, 9, 1, x.now(), "")
	wantTIDs(t, x.poll(t, false), 1)
}

func TestRecordTooBig(t *testing.T) {
	x := newBench(t, 1, Options{})
	if ok, err := x.p.Record(0, 1, 1, 1, make([]byte, MaxRecord-HeaderSize+1)); ok || !errors.Is(err, ErrTooBig) {
		t.Errorf("%v, %v", ok, err)
	}
	if ok, err := x.p.Record(0, 1, 1, 1, make([]byte, MaxRecord-HeaderSize)); !ok || err != nil {
		t.Errorf("the biggest: %v, %v", ok, err)
	}
	x.r.Look()
	if c := x.c.Probe(1); c.Hits != 2 || c.Lost != 1 {
		t.Errorf("counts %+v", c)
	}
}

// Records of every size over the ring's end, many laps.
func TestLaps(t *testing.T) {
	x := newBench(t, 1, Options{})
	for i := range uint32(5000) {
		data := make([]byte, int(i*37)%3000)
		for j := range data {
			data[j] = byte(i)
		}
		at := x.now()
		x.put(t, 0, 1+i%100, i, at, string(data))
		if i%7 == 0 {
			x.put(t, 0, 1, i, x.now(), "")
		}
		g := x.poll(t, false)
		if len(g) == 0 || g[0].TID != i || g[0].TSC != at || g[0].ID != 1+i%100 {
			t.Fatalf("record %d: %d records, first %+v", i, len(g), g[:min(1, len(g))])
		}
		if d := g[0].Data; len(d) != (len(data)+7)/8*8 || d[:len(data)] != string(data) {
			t.Fatalf("record %d: data differ", i)
		}
	}
	if !x.free(0) {
		t.Error("the room is not cleared")
	}
}

func TestEmitErrorEndsPoll(t *testing.T) {
	x := newBench(t, 1, Options{})
	for i := range uint32(5) {
		x.put(t, 0, 1, i, x.now(), "")
	}
	x.clock.advance(2 * slop)
	stop := errors.New("enough")
	n, err := x.r.Poll(func(r *Record) error {
		if r.TID == 2 {
			return stop
		}
		return nil
	})
	if n != 3 || !errors.Is(err, stop) {
		t.Fatalf("%d, %v", n, err)
	}
	wantTIDs(t, x.poll(t, false), 3, 4)
	if c := x.c.Probe(1); c.Recorded != 5 {
		t.Errorf("counts %+v", c)
	}
}

func TestNextReaderGoesOn(t *testing.T) {
	x := newBench(t, 1, Options{})
	x.put(t, 0, 1, 1, x.now(), "")
	wantTIDs(t, x.poll(t, false), 1)
	x.put(t, 0, 1, 2, x.now(), "")
	r, err := NewReader(x.b, x.l, Options{Clock: x.clock})
	if err != nil {
		t.Fatal(err)
	}
	x.r = r
	x.clock.advance(2 * MinSpan)
	wantTIDs(t, x.poll(t, false), 2)
}

func TestMemoryRefused(t *testing.T) {
	l, b := small(t, 1)
	for _, b := range [][]byte{nil, b[:l.Code.Off-1], b[1:]} {
		if _, err := NewReader(b, l, Options{}); !errors.Is(err, ErrMemory) {
			t.Errorf("reader over %d bytes: %v", len(b), err)
		}
		if _, err := NewProducer(b, l); !errors.Is(err, ErrMemory) {
			t.Errorf("producer over %d bytes: %v", len(b), err)
		}
		if _, err := NewCounters(b, l); !errors.Is(err, ErrMemory) {
			t.Errorf("counters over %d bytes: %v", len(b), err)
		}
	}
}

func TestCountersOutOfRange(t *testing.T) {
	x := newBench(t, 1, Options{})
	x.p.Count(99, 5, CounterHits, 1) // any CPU is brought into range
	x.p.Count(0, 5, CounterMissed, 2)
	x.p.Count(0, 5, CounterFiltered, 3)
	if c := x.c.Probe(5); c != (Counts{Hits: 4, Missed: 2, Filtered: 3, Counted: 1}) {
		t.Errorf("counts %+v", c)
	}
	if c := x.c.CPU(0, 5); c.Hits != 4 {
		t.Errorf("counts of CPU 0: %+v", c)
	}
	if c := x.c.Probe(101); c != (Counts{}) {
		t.Errorf("counts of no probe: %+v", c)
	}
	if c := x.c.CPU(1, 5); c != (Counts{}) {
		t.Errorf("counts of no CPU: %+v", c)
	}
	x.c.Clear(101)
	x.c.Clear(5)
	if c := x.c.Probe(5); c != (Counts{}) {
		t.Errorf("after Clear: %+v", c)
	}
}

func Example() {
	l, _ := New(Params{MaxProbes: 10, RingSize: MinRingSize})
	file := make([]byte, l.Size) // a mapped memfd
	p, _ := NewProducer(file, l)
	r, _ := NewReader(file, l, Options{})
	if _, err := p.Record(0, 1, 4711, SystemClock{}.TSC(), []byte("argument")); err != nil {
		fmt.Println(err)
	}
	_, err := r.Finish(func(rec *Record) error {
		fmt.Println(rec.ID, rec.TID, string(rec.Data))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1 4711 argument
	// <nil>
}

// TestBusy has a writer that takes the time before it reserves room: records
// wait for it, but not for ever.
func TestBusy(t *testing.T) {
	var since uint64
	x := newBench(t, 2, Options{Lateness: time.Millisecond, Busy: func() uint64 { return since }})
	since = x.now()
	at := x.now()
	x.clock.advance(10 * slop)
	x.put(t, 0, 1, 2, x.now(), "")
	x.clock.advance(10 * slop)
	wantTIDs(t, x.poll(t, false))
	x.put(t, 1, 1, 1, at, "")
	wantTIDs(t, x.poll(t, false))
	since = 0
	wantTIDs(t, x.poll(t, false), 1, 2)
	// One that stays busy holds nobody up for longer than its bound.
	since = x.now()
	x.clock.advance(10 * slop)
	x.put(t, 0, 1, 3, x.now(), "")
	x.clock.advance(int(busyLateness*time.Millisecond) - 20*slop)
	wantTIDs(t, x.poll(t, false))
	x.clock.advance(20 * slop)
	wantTIDs(t, x.poll(t, false), 3)
	// The end waits for nobody.
	since = x.now()
	x.clock.advance(10 * slop)
	x.put(t, 0, 1, 4, x.now(), "")
	wantTIDs(t, x.poll(t, true), 4)
	if s := x.r.Stats(); s.Late != 0 {
		t.Errorf("stats %+v", s)
	}
}
