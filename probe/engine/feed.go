package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/internal/procfs"
	"kprobe/probe/detour"
	"kprobe/probe/mailbox"
	"kprobe/probe/memory"
	"kprobe/probe/order"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/threads"
	"kprobe/symbols"
)

// Feed is where a target's hits come out: the rings and counters of its memory
// file, which detours write in the target and the tracer thread writes for
// hits of breakpoints, and the reader that merges both in order of time.
//
// The producer and the ids belong to the tracer thread, the reader to one
// goroutine at a time.
type Feed struct {
	engine   *Engine
	Pid      int
	numbers  *threads.Numbers // of its threads; in records they are those of its namespace
	Space    *symbols.Space
	File     *memory.File
	producer *ring.Producer
	counters *ring.Counters
	reader   *ring.Reader
	box      *ring.Mailbox // in the target's memory, of the goroutine that serves
	own      *mailbox.Own  // in kprobe's, too
	posted   chan struct{} // something is in one of them

	mu       sync.RWMutex  // guards probes
	changes  atomic.Uint64 // how often a number stopped being a probe's, or its probe went
	Ids      []*Placed     // by id - 1; nil: the id is free
	Spare    []uint32      // free ids
	usedRows int           // rows of bins that were ever in use
	freeRows []int
	// waiting are the definitions that wait for their library, with their ids.
	waiting map[*Definition]uint32
	seq     uint64 // of the place that came last
	names   *threads.Names
	recent  recent
	hit     results.Hit
	vals    []byte
	walk    stackWalk
	landed  trampolineLog
	// patience is for full rings.
	patience ring.Patience
	// keep takes records as they are, while none is unkept; nil: the sink wants hits.
	keep       *keeping
	blocks     blocks
	unkept     atomic.Int64  // probes whose records can't be kept
	generation atomic.Uint64 // how often a number became a probe's: a recording has to describe it

	stream order.Stream // of its hits, in the session's order
	over   atomic.Bool  // the target is left, or its image gone
	Cancel context.CancelFunc
	Done   chan struct{}
	// expects says that something in the target waits for its library.
	expects atomic.Bool
	ended   atomic.Bool // every probe was switched off for the end of the run
	outside outsides
	// owners tells of which process a thread is, where children record into the rings; nil:
	// they don't.
	owners *threads.Owners
}

func newFeed(s *Engine, pid int, space *symbols.Space, m *memory.File) (*Feed, error) {
	t := &Feed{engine: s, Pid: pid, numbers: threads.NumbersOf(pid), Space: space, File: m, names: threads.NewNames(pid), posted: make(chan struct{}, 1)}
	if s.forksRecord() {
		t.owners = threads.NewOwners(pid)
		t.names.Others()
		t.unkept.Add(1) // a kept record is of the process
	}
	t.recent.names = threads.NewRecent(t.names)
	t.stream.Tick = t.tick
	var err error
	if t.producer, err = ring.NewProducer(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.counters, err = ring.NewCounters(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.reader, err = ring.NewReader(m.Mem, m.Layout, ring.Options{Abandoned: t.abandoned, Busy: s.busy.Load, Polled: t.polled, Given: t.giveBlock, Taker: t.taker}); err != nil {
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

// abandoned reports whether a thread that left a record unfinished is gone, or, where
// signals were not held, went on elsewhere.
func (t *Feed) abandoned(tid uint32) bool {
	if tid != 0 {
		thread := procfs.Thread(t.Pid, t.numbers.Outside(tid))
		if t.owners != nil {
			thread = procfs.Process(int(tid))
		}
		_, err := os.Stat(string(thread))
		if errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return t.engine.LetsGo && t.jumpedOut(tid)
}

// Start begins to read.
func (t *Feed) Start(ctx context.Context) {
	if t.Done != nil {
		return
	}
	t.enableAgain()
	t.engine.SinkMu.Lock()
	sink := t.engine.Sink
	t.engine.SinkMu.Unlock()
	t.keepBy(sink)
	t.blocks.to, _ = sink.(results.BlockSink)
	t.engine.Order.Join(&t.stream)
	ctx, t.Cancel = context.WithCancel(ctx)
	t.Done = make(chan struct{})
	go t.serve(ctx)
	go func() {
		defer close(t.Done)
		if err := t.reader.Run(ctx, t.emit); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.engine.SinkMu.Lock()
			defer t.engine.SinkMu.Unlock()
			t.engine.endFrom(err)
		}
	}()
}

// calibrate waits until detours can tell the time: some milliseconds after the
// target was attached to.
func (t *Feed) calibrate() error {
	if t.Done == nil {
		return t.reader.Calibrate()
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
	rate, ok := t.reader.Rate(now)
	if !ok {
		return now, 0, ring.ErrClock
	}
	return now, rate, nil
}

// Finish ends reading and takes what is left in the rings; the probes are
// disabled.
func (t *Feed) Finish() error {
	if t.Done == nil {
		return nil
	}
	t.Cancel()
	<-t.Done
	t.Done = nil
	_, err := t.reader.Finish(t.emit)
	if t.keep != nil {
		t.keep.to.Over()
	}
	return err
}

// emit turns a record into a hit, or leaves that to who takes blocks of them.
func (t *Feed) emit(r *ring.Record) error {
	p := t.recentProbe(r.ID)
	if p == nil {
		return nil
	}
	s := t.engine
	if t.blocks.to != nil && p.bare() && !s.Order.Many() {
		t.collect(p, r)
		return nil
	}
	t.giveBlock() // those that came before it
	s.SinkMu.Lock()
	defer s.SinkMu.Unlock()
	if p.user == nil && (s.SinkEnded || s.Sink == nil) {
		p.Ev.dropped.Add(1)
		return nil
	}
	data := r.Data
	h := &t.hit
	*h = results.Hit{Time: uint64(r.Time), CPU: r.CPU}
	h.PID, h.TID, h.Comm = t.whose(r)
	var ok bool
	if data, ok = p.describe(h, data); !ok {
		p.Ev.lost.Add(1)
		return nil
	}
	behind := h.IP
	if p.data != nil {
		if h.IP, behind, data, ok = cutTail(data); !ok {
			p.Ev.lost.Add(1)
			return nil
		}
	}
	if p.prog.Stack != nil {
		t.stack(p, h, data, behind)
	}
	h.Data = t.times(p, data)
	if p.user != nil {
		if err := p.deliver(h); err != nil {
			s.endFrom(err)
		}
		return nil
	}
	if s.Order.Many() {
		s.Order.Put(&t.stream, p, h, r.TSC)
	} else {
		s.give(p, h)
	}
	return nil
}

// whose tells of which thread a record is, by the numbers of this side, and its name.
func (t *Feed) whose(r *ring.Record) (pid, tid int, comm string) {
	tid = t.numbers.Outside(r.TID)
	return t.owners.Of(tid, t.Pid), tid, t.recent.names.At(uint32(tid), uint64(r.Time))
}

// describe fills in what the hits of a probe have in common, and what is behind the values
// of a return. It gives the values; ok is false where the record is none of the probe's.
func (p *Placed) describe(h *results.Hit, data []byte) (vals []byte, ok bool) {
	h.Event, h.Program, h.Space, h.IP = &p.Ev.Event, p.prog, p.feed.Space, p.Where.Addr
	if !p.Ev.Return {
		return data, true
	}
	n := len(data) - detour.ReturnTail
	if n < 0 {
		return nil, false
	}
	h.RetIP, h.Func = symbols.Addr(Le64(data[n:])), p.fn
	return data[:n], true
}

// give gives the sink a hit. sinkMu is held.
func (s *Engine) give(p *Placed, h *results.Hit) {
	if s.SinkEnded {
		p.Ev.dropped.Add(1)
		return
	}
	err := s.Sink.Hit(h)
	if err == nil || errors.Is(err, results.ErrStop) {
		p.Ev.recorded.Add(1)
	} else {
		p.Ev.lost.Add(1)
	}
	if err != nil {
		s.SinkEnded = true
		s.endFrom(err)
	}
}

// times converts the time stamps that detours leave in values.
func (t *Feed) times(p *Placed, data []byte) []byte {
	cal := t.reader.Calibration()
	if len(p.timeSlots) == 0 || cal == nil {
		return data
	}
	t.vals = append(t.vals[:0], data...)
	for _, off := range p.timeSlots {
		if off+8 <= len(t.vals) {
			copy(t.vals[off:], Put64(uint64(cal.NS(Le64(t.vals[off:])))))
		}
	}
	return t.vals
}

// put records a hit of a breakpoint. The session's context is filled.
func (t *Feed) put(p *Placed, rec []byte, ret symbols.Addr) {
	s := t.engine
	for len(rec)&7 != 0 {
		rec = append(rec, 0)
	}
	if p.Ev.Return {
		rec = append(rec, Put64(uint64(ret))...)
	}
	if p.data != nil {
		rec = s.accessed.appendTail(rec)
	}
	s.rec = rec
	tid := t.numbers.Inside(s.ctx.TID)
	for {
		r, ok := t.producer.Reserve(s.ctx.CPU, p.Id, len(rec))
		if ok {
			r.Fill(tid, s.tsc, rec)
			r.Commit()
			return
		}
		if t.Done == nil || !t.patience.Wait(time.Now(), t.producer.Taken(s.ctx.CPU)) {
			break
		}
	}
	t.producer.Count(s.ctx.CPU, p.Id, ring.CounterLost, 1)
}
