package feed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// source is a memory file with who writes it and who reads it.
type source struct {
	*Reader
	write *ring.Producer
	clock ring.SystemClock
	wrote int
}

// newSource makes one whose probes have the numbers from 1 on.
func newSource(t *testing.T, out *Outlet, probes ...*Probe) *source {
	t.Helper()
	l, err := ring.New(ring.Params{CPUs: 2, MaxProbes: 10, RingSize: 1 << 20, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 4})
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, l.Size)
	s := &source{}
	if s.write, err = ring.NewProducer(mem, l); err != nil {
		t.Fatal(err)
	}
	if s.Reader, err = NewReader(Source{
		Pid: os.Getpid(), Mem: mem, Layout: l, Out: out,
		Probe: func(id uint32) *Probe {
			if id == 0 || int(id) > len(probes) {
				return nil
			}
			return probes[id-1]
		},
		Busy: func() uint64 { return 0 }, Left: func(ring.Unfinished) bool { return false }, Looked: func() {},
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// hit writes a record of a probe with a number in it.
func (s *source) hit(t *testing.T, id uint32, data []byte) {
	t.Helper()
	s.wrote++
	if ok, err := s.write.Record(s.wrote%2, id, uint32(os.Getpid()), s.clock.TSC(), data); err != nil || !ok {
		t.Fatalf("record %d: %v, room %v", s.wrote, err, ok)
	}
}

func newTestProbe(name string, change func(p *Probe)) *Probe {
	p := Probe{Event: &results.Event{Name: name}, Program: &fetch.Program{}, Counts: &Counts{}, Addr: 0x1000}
	if change != nil {
		change(&p)
	}
	return NewProbe(p)
}

// counts are recorded, lost and dropped.
func (p *Probe) counts() [3]uint64 {
	return [3]uint64{p.Counts.Recorded.Load(), p.Counts.Lost.Load(), p.Counts.Dropped.Load()}
}

// hits is a sink that notes what comes how, and fails after so many.
type hits struct {
	names  []string
	times  []uint64
	blocks int
	most   int // 0: it wants all
	err    error
}

func (s *hits) Hit(h *results.Hit) error {
	if s.most != 0 && len(s.names) == s.most {
		return s.err
	}
	s.names = append(s.names, h.Event.Name)
	s.times = append(s.times, h.Time)
	if s.most == len(s.names) && errors.Is(s.err, results.ErrStop) {
		return s.err
	}
	return nil
}

// hitsInBlocks is hits that takes blocks.
type hitsInBlocks struct{ hits }

func (s *hitsInBlocks) Block(b results.Block) (taken int, err error) {
	defer b.Over()
	s.blocks++
	n := b.Len()
	if err := b.Each(func(h *results.Hit) error {
		err := s.Hit(h)
		if err == nil || errors.Is(err, results.ErrStop) {
			taken++
		}
		return err
	}); err != nil {
		return taken, err
	}
	if taken != n {
		return taken, fmt.Errorf("%d of %d hits", taken, n)
	}
	return taken, nil
}

// readAll has sources read what they have, with a sink.
func readAll(t *testing.T, out *Outlet, sink results.Sink, sources ...*source) {
	t.Helper()
	out.Begin(sink, false)
	for _, s := range sources {
		s.Join() // their records are there already
	}
	for _, s := range sources {
		s.Start(context.Background())
	}
	for _, s := range sources {
		if err := s.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	out.GiveOrdered(true)
	out.Over()
}

// Hits come in their order, in blocks where the sink wants that and there is one process,
// and each is counted once.
func TestHitsComeInOrder(t *testing.T) {
	for _, processes := range []int{1, 3} {
		for _, sink := range []results.Sink{&hits{}, &hitsInBlocks{}} {
			out := NewOutlet(func() { t.Error("the run ended") })
			var all []*source
			var probes []*Probe
			for range processes {
				ps := []*Probe{newTestProbe("a", nil), newTestProbe("watch", func(p *Probe) { p.Watches = true }), newTestProbe("ret", func(p *Probe) { p.Event.Return = true })}
				probes = append(probes, ps...)
				all = append(all, newSource(t, out, ps...))
			}
			var want []string
			const each = 2000
			for i := range each {
				id := uint32(1 + i/7%3)
				want = append(want, []string{"a", "watch", "ret"}[id-1])
				data := (&Access{Did: symbols.Addr(i), Behind: 2}).Append(nil)
				all[i%processes].hit(t, id, data)
				if i%500 == 0 {
					all[i%processes].hit(t, 9, nil) // nobody's
				}
			}
			all[0].hit(t, 3, nil) // too short for one of a return
			all[0].hit(t, 2, nil)
			readAll(t, out, sink, all...)
			got, blocks := sink.(interface{ all() (*hits, bool) }).all()
			if !slices.Equal(got.names, want) || !slices.IsSorted(got.times) {
				t.Errorf("%d processes, blocks %v: %d hits, want %d; in order %v", processes, blocks, len(got.names), each, slices.IsSorted(got.times))
			}
			if used := got.blocks > 0; used != (blocks && processes == 1) {
				t.Errorf("%d processes: %d blocks", processes, got.blocks)
			}
			sum := [3]uint64{}
			for _, p := range probes {
				for i, n := range p.counts() {
					sum[i] += n
				}
			}
			if sum != [3]uint64{each, 2, 0} {
				t.Errorf("counted were %v", sum)
			}
		}
	}
}

func (s *hits) all() (*hits, bool)         { return s, false }
func (s *hitsInBlocks) all() (*hits, bool) { return &s.hits, true }

// What the sink takes is recorded, what it fails at lost, and the rest nobody's.
func TestSinkEnds(t *testing.T) {
	broken := errors.New("the disk is full")
	for _, cause := range []error{results.ErrStop, broken} {
		for _, blocks := range []bool{false, true} {
			h := hits{most: 700, err: cause}
			sink := results.Sink(&h)
			if blocks {
				sink = &hitsInBlocks{h}
			}
			ended := 0
			out := NewOutlet(func() { ended++ })
			p, q := newTestProbe("p", nil), newTestProbe("q", nil)
			s := newSource(t, out, p, q)
			for i := range 2000 {
				s.hit(t, uint32(1+i/100%2), nil)
			}
			readAll(t, out, sink, s)
			lost := uint64(1)
			if cause == results.ErrStop {
				lost = 0
			}
			a, b := p.counts(), q.counts()
			if a != [3]uint64{400, 0, 600} || b != [3]uint64{300, lost, 700 - lost} {
				t.Errorf("%v, blocks %v: counted were %v and %v", cause, blocks, a, b)
			}
			over, err := out.Ended()
			if !over || ended != 1 || errors.Is(cause, broken) != (err != nil) {
				t.Errorf("blocks %v: ended %v, %d times, by %v", blocks, over, ended, err)
			}
		}
	}
}

// A probe with a function of its own gets its hits in their turn, and they are counted by it.
func TestDelivered(t *testing.T) {
	ended := false
	out := NewOutlet(func() { ended = true })
	n := 0
	broken := errors.New("it panicked")
	own := newTestProbe("own", func(p *Probe) {
		p.Deliver = func(*results.Hit) error {
			if n++; n == 3 {
				return broken
			}
			return nil
		}
	})
	s := newSource(t, out, own, newTestProbe("p", nil))
	for i := range 6 {
		s.hit(t, uint32(1+i%2), nil)
	}
	sink := &hitsInBlocks{}
	readAll(t, out, sink, s)
	if _, err := out.Ended(); n != 3 || !ended || err != broken || len(sink.names) != 3 || own.Kept != nil || own.counts() != [3]uint64{} {
		t.Errorf("%d were delivered, ended %v by %v; %d others", n, ended, err, len(sink.names))
	}
}

// The sink's turn is waited for, and not for ever.
func TestAwaitTurn(t *testing.T) {
	out := NewOutlet(func() {})
	out.AwaitTurn(time.Hour)
	out.mu.Lock()
	out.AwaitTurn(time.Millisecond)
	go func() {
		time.Sleep(5 * time.Millisecond)
		out.mu.Unlock()
	}()
	out.AwaitTurn(time.Hour)
}

// What a return address stood for is known for the calls that were followed last.
func TestTrampolines(t *testing.T) {
	var l Trampolines
	if got := l.behind(5, 0, 0); got != 5 {
		t.Errorf("without any: %v", got)
	}
	for i := range symbols.Addr(maxLanded + 10) {
		l.Note(100, 200, Landed{Time: uint64(1000 + i), At: 100 + i%4, Slot: 0x8000 + i, Ret: 0x4000 + i})
	}
	l.Hide(900, 950)
	last := symbols.Addr(maxLanded + 9)
	for _, tt := range []struct {
		ra, slot symbols.Addr
		time     uint64
		want     symbols.Addr
	}{
		{99, 0, 1 << 40, 99},
		{200, 0, 1 << 40, 200},
		{100 + last%4, 0x8000 + last, 1 << 40, 0x4000 + last},
		{100 + last%4, 0x8000 + last - 4, uint64(1000 + last - 4), 0x4000 + last - 4},
		{100 + last%4, 0x8000 + last - 4, 1 << 40, 0}, // it is another's by then
		{100, 0x8000, 1000, 0}, // too long ago
		{920, 0, 1 << 40, 0},
	} {
		if got := l.behind(tt.ra, tt.slot, tt.time); got != tt.want {
			t.Errorf("%v in the slot at %v at %d stands for %v, want %v", tt.ra, tt.slot, tt.time, got, tt.want)
		}
	}
}

// TestHaltBesideFinish: a session may be closed while its run ends. Each waits for the reader,
// and neither for the other.
func TestHaltBesideFinish(t *testing.T) {
	out := NewOutlet(func() { t.Error("the run ended") })
	out.Begin(&hits{}, false)
	s := newSource(t, out)
	for range 5000 {
		s.Start(t.Context())
		var both sync.WaitGroup
		for range 4 {
			both.Go(s.Halt)
		}
		both.Go(func() {
			if err := s.Finish(); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		s.Part()
		if s.Reading() {
			t.Fatal("it reads after its end")
		}
	}
}
