package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/probe/feed"
	"kprobe/probe/mailbox"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Feed is where a target's hits come out: the rings and counters of its memory
// file, which detours write in the target and the tracer thread writes for
// hits of breakpoints, and what reads them.
//
// The producer and the ids belong to the tracer thread.
type Feed struct {
	*feed.Reader
	engine   *Engine
	Pid      int
	Space    *symbols.Space
	File     *memory.File
	producer *ring.Producer
	counters *ring.Counters
	box      *ring.Mailbox // in the target's memory, of the goroutine that serves
	own      *mailbox.Own  // in kprobe's, too
	posted   chan struct{} // something is in one of them

	mu       sync.RWMutex // guards probes
	Ids      []*Placed    // by id - 1; nil: the id is free
	Spare    []uint32     // free ids
	usedRows int          // rows of bins that were ever in use
	freeRows []int
	// waiting are the definitions that wait for their library, with their ids.
	waiting map[*Definition]uint32
	seq     uint64 // of the place that came last
	// patience is for full rings.
	patience ring.Patience
	over     atomic.Bool // the target is left, or its image gone
	// expects says that something in the target waits for its library.
	expects atomic.Bool
	ended   atomic.Bool // every probe was switched off for the end of the run
	outside outsides
}

func newFeed(s *Engine, pid int, space *symbols.Space, m *memory.File) (*Feed, error) {
	t := &Feed{engine: s, Pid: pid, Space: space, File: m, posted: make(chan struct{}, 1)}
	var err error
	if t.producer, err = ring.NewProducer(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.counters, err = ring.NewCounters(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.Reader, err = feed.NewReader(feed.Source{
		Pid: pid, Space: space, Mem: m.Mem, Layout: m.Layout, Out: s.Out, Forks: s.forksRecord(),
		Probe: t.read, Busy: s.busy.Load, Left: func(tid uint32) bool { return s.LetsGo && t.jumpedOut(tid) }, Looked: t.look,
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

// Start begins to read.
func (t *Feed) Start(ctx context.Context) {
	if t.Reading() {
		return
	}
	t.enableAgain()
	go t.serve(t.Reader.Start(ctx))
}

// calibrate waits until detours can tell the time: some milliseconds after the
// target was attached to.
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

// rate is how time stamps become times, by a sample of now (ring.Reader.Rate).
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

// put records a hit of a breakpoint. The session's context is filled.
func (t *Feed) put(p *Placed, rec []byte, ret symbols.Addr) {
	s := t.engine
	for len(rec)&7 != 0 {
		rec = append(rec, 0)
	}
	if p.Ev.Return {
		rec = append(rec, put64(uint64(ret))...)
	}
	if p.data != nil {
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
