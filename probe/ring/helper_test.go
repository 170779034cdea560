package ring

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"
)

// small is a layout whose file a test can afford.
func small(t testing.TB, cpus int) (*Layout, []byte) {
	t.Helper()
	l, err := New(Params{CPUs: cpus, MaxProbes: 100, RingSize: MinRingSize, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 4})
	if err != nil {
		t.Fatal(err)
	}
	return l, make([]byte, l.Size)
}

// fakeClock counts a tick per ns and moves only when told.
type fakeClock struct{ now atomic.Int64 }

func (c *fakeClock) TSC() uint64    { return uint64(c.now.Add(1)) + 1<<40 }
func (c *fakeClock) Mono() int64    { return c.now.Load() }
func (c *fakeClock) advance(ns int) { c.now.Add(int64(ns)) }

// bench is a file with both ends.
type bench struct {
	l     *Layout
	b     []byte
	clock *fakeClock
	p     *Producer
	r     *Reader
	c     *Counters
}

func newBench(t testing.TB, cpus int, opts Options) *bench {
	t.Helper()
	l, b := small(t, cpus)
	return newBenchOf(t, l, b, opts)
}

// newBenchOf is newBench for a file b that is laid out already.
func newBenchOf(t testing.TB, l *Layout, b []byte, opts Options) *bench {
	t.Helper()
	x := &bench{l: l, b: b, clock: &fakeClock{}}
	if opts.Clock == nil {
		opts.Clock = x.clock
	}
	var err error
	if x.p, err = NewProducer(b, l); err != nil {
		t.Fatal(err)
	}
	if x.r, err = NewReader(b, l, opts); err != nil {
		t.Fatal(err)
	}
	if x.c, err = NewCounters(b, l); err != nil {
		t.Fatal(err)
	}
	x.clock.advance(2 * MinSpan)
	return x
}

// now is the counter's value for a record written now.
func (x *bench) now() uint64 { return x.clock.TSC() }

// got is a record that outlives its callback.
type got struct {
	ID, TID uint32
	CPU     int
	TSC     uint64
	Data    string
}

func (x *bench) poll(t testing.TB, final bool) []got {
	t.Helper()
	x.clock.advance(2 * slop)
	var out []got
	look := x.r.Poll
	if final {
		look = x.r.Finish
	}
	n, err := look(func(r *Record) error {
		out = append(out, got{r.ID, r.TID, r.CPU, r.TSC, string(r.Data)})
		return nil
	})
	if err != nil || n != len(out) {
		t.Fatalf("poll gave %d, %v; saw %d", n, err, len(out))
	}
	return out
}

func tids(g []got) []uint32 {
	var out []uint32
	for _, x := range g {
		out = append(out, x.TID)
	}
	return out
}

func wantTIDs(t testing.TB, g []got, want ...uint32) {
	t.Helper()
	if !slices.Equal(tids(g), want) {
		t.Fatalf("records of threads %v, want %v", tids(g), want)
	}
}

// free reports whether all ring room is zero again.
func (x *bench) free(cpu int) bool {
	at := x.l.RingData(cpu)
	for _, v := range x.b[at : at+x.l.RingStride()] {
		if v != 0 {
			return false
		}
	}
	return true
}

func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
