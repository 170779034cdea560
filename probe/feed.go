package probe

import (
	"context"
	"encoding/binary"
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
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/probe/threads"
	"kprobe/symbols"
)

// feed is where a target's hits come out: the rings and counters of its memory
// file, which detours write in the target and the tracer thread writes for
// hits of breakpoints, and the reader that merges both in order of time.
//
// The producer and the ids belong to the tracer thread, the reader to one
// goroutine at a time.
type feed struct {
	s        *Session
	pid      int
	numbers  *threads.Numbers // of its threads; in records they are those of its namespace
	space    *symbols.Space
	file     *memory.File
	producer *ring.Producer
	counters *ring.Counters
	reader   *ring.Reader
	box      *ring.Mailbox // in the target's memory, of the goroutine that serves
	own      *mailbox.Own  // in kprobe's, too
	posted   chan struct{} // something is in one of them

	mu       sync.RWMutex  // guards probes
	changes  atomic.Uint64 // how often ids were freed, and more
	ids      []*placed     // by id - 1; nil: the id is free
	spare    []uint32      // free ids
	usedRows int           // rows of bins that were ever in use
	freeRows []int
	// waiting are the definitions that wait for their library, with their ids.
	waiting map[*defOf]uint32
	seq     uint64 // of the place that came last
	names   *threads.Names
	recent  recent
	hit     Hit
	vals    []byte
	walk    stackWalk
	landed  trampolineLog
	// patience is for full rings.
	patience ring.Patience
	// keep takes records as they are, while none is unkept; nil: the sink wants hits.
	keep       *keeping
	unkept     atomic.Int64  // probes whose records can't be kept
	generation atomic.Uint64 // changes when a number becomes a probe's

	stream order.Stream // of its hits, in the session's order
	over   atomic.Bool  // the target is left, or its image gone
	cancel context.CancelFunc
	done   chan struct{}
	// expects says that something in the target waits for its library.
	expects atomic.Bool
	ended   atomic.Bool // every probe was switched off for the end of the run
}

func newFeed(s *Session, pid int, space *symbols.Space, m *memory.File) (*feed, error) {
	t := &feed{s: s, pid: pid, numbers: threads.NumbersOf(pid), space: space, file: m, names: threads.NewNames(pid), posted: make(chan struct{}, 1)}
	t.recent.names = threads.NewRecent(t.names)
	t.stream.Tick = t.tick
	var err error
	if t.producer, err = ring.NewProducer(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.counters, err = ring.NewCounters(m.Mem, m.Layout); err != nil {
		return nil, err
	}
	if t.reader, err = ring.NewReader(m.Mem, m.Layout, ring.Options{Abandoned: t.abandoned, Busy: s.busy.Load, Polled: t.polled, Taker: t.taker}); err != nil {
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

// abandoned reports whether a thread that left a record unfinished is gone.
func (t *feed) abandoned(tid uint32) bool {
	if tid == 0 {
		return false
	}
	_, err := os.Stat(string(procfs.Thread(t.pid, t.numbers.Outside(tid))))
	return errors.Is(err, os.ErrNotExist)
}

// add gives a probe its id and its descriptor, enabled unless its event is off.
func (t *feed) add(p *placed) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, err := t.number(p)
	if err != nil {
		return err
	}
	p.id = id
	t.seq++
	p.feed, p.seq, p.removed = t, t.seq, false
	t.giveRow(p)
	if p.keepAs = p.kept(); p.keepAs == nil {
		t.unkept.Add(1)
	}
	t.generation.Add(1)
	flags := uint32(ring.FlagEnabled)
	if p.ev.off.Load() || t.waitsOff(p) {
		flags = 0
	}
	if p.ev.Return {
		flags |= ring.FlagReturn
	}
	if !t.s.records(p.user) {
		flags |= ring.FlagCountOnly
	}
	d := ring.Probe{ID: p.id, Name: p.ev.Group + "/" + p.ev.Name, Addr: uint64(p.where.Addr), Armed: t.s.clock.now()}
	t.file.Mem[t.file.Layout.Kind(p.id)] = t.s.control.kinds[d.Name]
	t.describe(d, flags)
	p.ev.join(p)
	return nil
}

// free gives the id of a probe back that no record and no detour has any more.
// Its counters stay with its event.
func (t *feed) free(p *placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.removed = true
	t.file.Store32(t.file.Layout.Probe(p.id), 0)
	t.file.Mem[t.file.Layout.Kind(p.id)] = 0
	t.takeRow(p)
	p.ev.part(p, t.counters.Probe(p.id))
	t.counters.Clear(p.id)
	if p.keepAs == nil {
		t.unkept.Add(-1)
	}
	t.ids[p.id-1] = nil
	t.spare = append(t.spare, p.id)
	t.changed()
}

// leave switches a probe off for good and takes it off the list that others
// see, or takes that back.
func (t *feed) leave(p *placed, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone == p.removed {
		return
	}
	p.removed = gone
	if gone {
		p.wasOff = t.disabled(p)
		t.setFlags(p, 0, ring.FlagEnabled)
		t.file.Store32(t.file.Layout.Probe(p.id), 0)
	} else {
		if !p.wasOff && !t.ended.Load() {
			t.setFlags(p, ring.FlagEnabled, 0)
		}
		t.file.Store32(t.file.Layout.Probe(p.id), p.id)
	}
	t.changed()
}

// turn switches a probe on or off.
func (t *feed) turn(p *placed, on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.removed:
	case t.ended.Load():
		p.wasOff = !on
	case on:
		t.setFlags(p, ring.FlagEnabled, 0)
	default:
		t.setFlags(p, 0, ring.FlagEnabled)
	}
}

// changed tells those who look that probes have come or gone.
func (t *feed) changed() {
	h := t.file.Layout.Header.Off
	t.changes.Add(1)
	t.file.Store32(h+ring.ProbesOff, uint32(len(t.ids)))
	t.file.Store64(h+ring.GenerationOff, t.file.Load64(h+ring.GenerationOff)+1)
}

// enabled reports whether hits of the probe are taken.
func (t *feed) enabled(p *placed) bool {
	return t.file.Load32(t.file.Layout.Flag(p.id))&ring.FlagEnabled != 0
}

// optimized reports whether the probe is a jump.
func (t *feed) optimized(p *placed) bool {
	return t.file.Load32(t.file.Layout.Flag(p.id))&ring.FlagOptimized != 0
}

// enableAgain undoes disableAll for another run.
func (t *feed) enableAgain() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.ended.Load() {
		return
	}
	for _, p := range t.ids {
		if p != nil && !p.removed && !p.wasOff {
			t.setFlags(p, ring.FlagEnabled, 0)
		}
	}
	t.ended.Store(false)
}

// disabled reports whether the probe was switched off; at the end of a run all
// are, and it is what it was before.
func (t *feed) disabled(p *placed) bool {
	if t.ended.Load() {
		return p.wasOff
	}
	return !t.enabled(p)
}

// setFlags sets and clears flags of a probe.
func (t *feed) setFlags(p *placed, set, clear uint32) {
	// Others write the first byte at any time, and only it.
	at := t.file.Layout.Flag(p.id)
	for i := range 4 {
		on, off := byte(set>>(8*i)), byte(clear>>(8*i))
		if b := &t.file.Mem[at+int64(i)]; on|off != 0 {
			*b = *b&^off | on
		}
	}
}

// setTactic tells other kprobes how the probe's place is patched.
func (t *feed) setTactic(p *placed, tactic plan.Tactic) {
	at := t.file.Layout.Probe(p.id) + ring.TacticOff
	binary.LittleEndian.PutUint16(t.file.Mem[at:], uint16(tactic))
}

// disableAll has no probe take a hit any more.
func (t *feed) disableAll() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ids {
		if p == nil || p.removed {
			continue
		}
		if !t.ended.Load() {
			p.wasOff = !t.enabled(p)
		}
		t.setFlags(p, 0, ring.FlagEnabled)
	}
	t.ended.Store(true)
}

func (t *feed) probe(id uint32) *placed {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if id == 0 || int(id) > len(t.ids) {
		return nil
	}
	return t.ids[id-1]
}

// start begins to read.
func (t *feed) start(ctx context.Context) {
	if t.done != nil {
		return
	}
	t.enableAgain()
	t.s.sinkMu.Lock()
	sink := t.s.sink
	t.s.sinkMu.Unlock()
	t.keepBy(sink)
	t.s.order.Join(&t.stream)
	ctx, t.cancel = context.WithCancel(ctx)
	t.done = make(chan struct{})
	go t.serve(ctx)
	go func() {
		defer close(t.done)
		if err := t.reader.Run(ctx, t.emit); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.s.sinkMu.Lock()
			defer t.s.sinkMu.Unlock()
			t.s.endFrom(err)
		}
	}()
}

// calibrate waits until detours can tell the time: some milliseconds after the
// target was attached to.
func (t *feed) calibrate() error {
	if t.done == nil {
		return t.reader.Calibrate()
	}
	at := t.file.Layout.Header.Off + ring.ClockOff
	for deadline := time.Now().Add(time.Second); t.file.Load64(at) == 0; {
		if time.Now().After(deadline) {
			return ring.ErrClock
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// finish ends reading and takes what is left in the rings; the probes are
// disabled.
func (t *feed) finish() error {
	if t.done == nil {
		return nil
	}
	t.cancel()
	<-t.done
	t.done = nil
	_, err := t.reader.Finish(t.emit)
	if t.keep != nil {
		t.keep.to.Over()
	}
	return err
}

// emit turns a record into a hit.
func (t *feed) emit(r *ring.Record) error {
	p := t.recentProbe(r.ID)
	if p == nil {
		return nil
	}
	s := t.s
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	if p.user == nil && (s.sinkEnded || s.sink == nil) {
		p.ev.dropped.Add(1)
		return nil
	}
	data := r.Data
	tid := t.numbers.Outside(r.TID)
	h := &t.hit
	*h = Hit{
		Event: &p.ev.Event, Program: p.prog, Space: t.space,
		Time: uint64(r.Time), PID: t.pid, TID: tid, CPU: r.CPU, Comm: t.recent.names.At(uint32(tid), uint64(r.Time)),
		IP: p.where.Addr,
	}
	if p.ev.Return {
		if len(data) < detour.ReturnTail {
			p.ev.lost.Add(1)
			return nil
		}
		h.RetIP = symbols.Addr(le64(data[len(data)-detour.ReturnTail:]))
		h.Func = p.fn
		data = data[:len(data)-detour.ReturnTail]
	}
	behind := h.IP
	if p.data != nil {
		var ok bool
		if h.IP, behind, data, ok = cutTail(data); !ok {
			p.ev.lost.Add(1)
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
	if s.order.Many() {
		s.order.Put(&t.stream, p, h, r.TSC)
	} else {
		s.give(p, h)
	}
	return nil
}

// give gives the sink a hit. sinkMu is held.
func (s *Session) give(p *placed, h *Hit) {
	if s.sinkEnded {
		p.ev.dropped.Add(1)
		return
	}
	err := s.sink.Hit(h)
	if err == nil || errors.Is(err, ErrStop) {
		p.ev.recorded.Add(1)
	} else {
		p.ev.lost.Add(1)
	}
	if err != nil {
		s.sinkEnded = true
		s.endFrom(err)
	}
}

// times converts the time stamps that detours leave in values.
func (t *feed) times(p *placed, data []byte) []byte {
	cal := t.reader.Calibration()
	if len(p.timeSlots) == 0 || cal == nil {
		return data
	}
	t.vals = append(t.vals[:0], data...)
	for _, off := range p.timeSlots {
		if off+8 <= len(t.vals) {
			copy(t.vals[off:], put64(uint64(cal.NS(le64(t.vals[off:])))))
		}
	}
	return t.vals
}

// put records a hit of a breakpoint. The session's context is filled.
func (t *feed) put(p *placed, rec []byte, ret symbols.Addr) {
	s := t.s
	for len(rec)&7 != 0 {
		rec = append(rec, 0)
	}
	if p.ev.Return {
		rec = append(rec, put64(uint64(ret))...)
	}
	if p.data != nil {
		rec = s.accessed.appendTail(rec)
	}
	s.rec = rec
	tid := t.numbers.Inside(s.ctx.TID)
	for {
		r, ok := t.producer.Reserve(s.ctx.CPU, p.id, len(rec))
		if ok {
			r.Fill(tid, s.tsc, rec)
			r.Commit()
			return
		}
		if t.done == nil || !t.patience.Wait(time.Now(), t.producer.Taken(s.ctx.CPU)) {
			break
		}
	}
	t.producer.Count(s.ctx.CPU, p.id, ring.CounterLost, 1)
}
