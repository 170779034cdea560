package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/probe/detour"
	"kprobe/probe/feed"
	"kprobe/probe/mailbox"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Feed is the way of a target's hits to the sink: the rings and counters of its memory file, and
// their reader. Detours in the target write to them, and the tracer's thread does for hits of
// breakpoints.
//
// The producer, the numbers and the descriptors belong to the tracer's thread.
type Feed struct {
	*feed.Reader
	engine   *Engine
	Pid      int
	Space    *symbols.Space
	File     *memory.File
	producer *ring.Producer
	counters *memory.Counters
	box      *ring.Mailbox // the mailbox in the target's memory; used by the goroutine of serve only
	own      *mailbox.Own  // the mailbox in kprobe's memory; used by that goroutine only
	posted   chan struct{} // receives a value when a request is in one of them

	descriptors *memory.Seldom
	descriptor  [ring.ProbeSize]byte // the one that is being written

	mu       sync.RWMutex // guards the fields up to waiting
	Ids      []*Placed    // the probe with number n is at n-1; nil: the number is free
	Spare    []uint32     // free numbers
	usedRows int          // number of rows of bins that were ever in use
	freeRows []int
	// waiting are the definitions that wait for their library, with their numbers.
	waiting map[*Definition]uint32
	seq     uint64 // number of probes that were ever added
	// patience limits waiting for room in full rings.
	patience ring.Patience
	over     atomic.Bool // the target was left, or its address space is gone
	// expects says that a definition waits for its library in the target.
	expects atomic.Bool
	ended   atomic.Bool // DisableAll has switched all probes off
	left    leftRecords
}

func newFeed(s *Engine, pid int, space *symbols.Space, m *memory.File) (*Feed, error) {
	t := &Feed{engine: s, Pid: pid, Space: space, File: m, posted: make(chan struct{}, 1), descriptors: m.Seldom(m.Layout.Probes, 1)}
	var err error
	if t.producer, err = ring.NewProducer(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.counters, err = m.Counters(); err != nil {
		return nil, err
	}
	if t.Reader, err = feed.NewReader(feed.Source{
		Pid: pid, Space: space, Mem: m.Mem, Layout: m.Layout, Out: s.Out, Forks: s.forksRecord(),
		Probe: t.read, Lateness: s.Lateness, Busy: s.busy.Load, Left: func(u ring.Unfinished) bool { return s.LetsGo && t.jumpedOut(u) }, Looked: t.look,
	}); err != nil {
		return nil, err
	}
	if t.box, err = ring.NewMailbox(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.own, err = mailbox.NewOwn(pid); err != nil {
		return nil, err
	}
	random := rand.Uint64()
	for n := range m.Layout.NumRings() {
		if m.Layout.Overwrite {
			m.Store64(m.Layout.RingWord(n, ring.TailOff), m.Layout.FirstPosition(random))
			m.Store64(m.Layout.RingWord(n, ring.HeadOff), m.Layout.FirstPosition(random))
		}
		m.Store64(m.Layout.RingWord(n, ring.DataPtr), uint64(m.Addr(m.Layout.RingData(n))))
		m.Store64(m.Layout.RingWord(n, ring.MaskOff), uint64(m.Layout.RingSize-1))
	}
	return t, nil
}

// Start starts the goroutines that read the rings and serve the mailboxes. It does nothing if they
// run already.
func (t *Feed) Start(ctx context.Context) {
	if t.Reading() {
		return
	}
	t.enableAgain()
	go t.serve(t.Reader.Start(ctx))
}

// calibrate waits until detours can compute times, which takes some milliseconds after attaching.
// The error is ring.ErrClock.
func (t *Feed) calibrate() error {
	if !t.Reading() {
		return t.Rings.Calibrate()
	}
	at := t.File.Layout.Header.Off + ring.ClockOff
	for deadline := time.Now().Add(time.Second); t.File.Load64(at) == 0; {
		if time.Now().After(deadline) {
			return ring.ErrClock
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// rate returns how time stamps become times: a sample of both clocks now, and the rate
// (ring.Reader.Rate).
func (t *Feed) rate() (now ring.Sample, rate uint64, err error) {
	if err := t.calibrate(); err != nil {
		return now, 0, err
	}
	now = ring.TakeSample(ring.SystemClock{})
	rate, ok := t.Rings.Rate(now)
	if !ok {
		return now, 0, ring.ErrClock
	}
	return now, rate, nil
}

// put writes the record of a breakpoint's hit into a ring. If the ring is full, it waits for room for
// a limited time, and then counts the hit as lost. The session's context is filled.
func (t *Feed) put(p *Placed, rec []byte, ret symbols.Addr) {
	s := t.engine
	for len(rec)&7 != 0 {
		rec = append(rec, 0)
	}
	behind := 0
	if p.Ev.Return {
		behind += detour.ReturnTail
	}
	if p.data() != nil {
		behind += feed.AccessSize
	}
	rec = append(rec, make([]byte, ring.Padded(len(rec)+behind)-len(rec)-behind)...)
	if p.Ev.Return {
		rec = append(rec, put64(uint64(ret))...)
	}
	if p.data() != nil {
		rec = s.accessed.Append(rec)
	}
	s.rec = rec
	tid := t.Numbers.Inside(s.ctx.TID)
	for {
		r, ok := t.producer.Reserve(s.ctx.CPU, p.Id, len(rec))
		if ok {
			r.Fill(tid, s.tsc, rec)
			r.Commit()
			return
		}
		if !t.Reading() || !t.patience.Wait(time.Now(), t.producer.Taken(s.ctx.CPU)) {
			break
		}
	}
	t.producer.Count(s.ctx.CPU, p.Id, ring.CounterLost, 1)
}
