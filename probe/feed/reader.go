package feed

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/internal/procfs"
	"kprobe/probe/order"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/threads"
	"kprobe/symbols"
)

// Source is what a Reader reads, and what it asks about it.
type Source struct {
	Pid   int
	Space *symbols.Space
	// Mem is the mapped memory file; Layout is its layout.
	Mem    []byte
	Layout *ring.Layout
	Out    *Outlet
	// Forks says that children record into the rings, too.
	Forks bool
	// Probe finds a probe by its number; nil if there is none. Any goroutine may call it.
	Probe func(id uint32) *Probe
	// Lateness and Busy are as in ring.Options.
	Lateness time.Duration
	Busy     func() uint64
	// Left reports whether a living thread has abandoned an unfinished record.
	Left func(ring.Unfinished) bool
	// Looked is called after each look at the rings, and by Outlet.Tick.
	Looked func()
}

// Reader reads the rings of a process and of the processes that share its memory. Unless its comment says
// otherwise, a method belongs to one goroutine: from Start to Halt or Finish that is the reader's own.
type Reader struct {
	from    Source
	Rings   *ring.Reader
	Numbers *threads.Numbers // translates thread numbers; records have those of the process's namespace
	Names   *threads.Names
	// Owners finds the process of a thread, if children record into the rings; nil: they don't.
	Owners *threads.Owners
	// Trampolines are return trampolines that stacks may have.
	Trampolines Trampolines

	changes    atomic.Uint64 // number of times that a probe's number was released, or a probe removed
	unkept     atomic.Int64  // number of probes whose records can't be kept
	generation atomic.Uint64 // number of times that a probe got a number, so that recordings must describe it

	recent recent
	hit    results.Hit
	vals   []byte
	walk   stackWalk
	keep   *keeping // takes records as they are, while unkept is 0; nil: the sink takes hits
	blocks blocks
	stream order.Stream // its hits in the session's order

	reading reading
}

// reading is the goroutine that reads, from Start to Finish. Halt may be called beside Finish: a session that is
// closed halts the readers that its run is about to finish.
type reading struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended; nil: none was started, or it is finished
}

// halt ends the goroutine. begun is false if there is none.
func (r *reading) halt() (begun bool) {
	r.mu.Lock()
	cancel, done := r.cancel, r.done
	r.mu.Unlock()
	if done == nil {
		return false
	}
	cancel()
	<-done
	return true
}

// forget makes it as before Start.
func (r *reading) forget() {
	r.mu.Lock()
	r.cancel, r.done = nil, nil
	r.mu.Unlock()
}

// NewReader makes a reader. Its errors are those of ring.NewReader.
func NewReader(from Source) (*Reader, error) {
	t := &Reader{from: from, Numbers: threads.NumbersOf(from.Pid), Names: threads.NewNames(from.Pid)}
	if from.Forks {
		t.Owners = threads.NewOwners(from.Pid)
		t.Names.Others()
		t.unkept.Add(1) // a kept record counts as the process's, so children's can't be kept
	}
	t.recent.names = threads.NewRecent(t.Names)
	t.stream.Tick = t.tick
	var err error
	t.Rings, err = ring.NewReader(from.Mem, from.Layout, ring.Options{
		Lateness: from.Lateness, Abandoned: t.abandoned, Busy: from.Busy, Polled: t.polled, Given: t.giveBlock, Taker: t.taker,
	})
	return t, err
}

// Added notes a probe that has got a number. kept says that its records can be kept (Keepable). Any goroutine may
// call it.
func (t *Reader) Added(kept bool) {
	if !kept {
		t.unkept.Add(1)
	}
	t.generation.Add(1)
}

// Removed notes a probe whose number was released, as Added.
func (t *Reader) Removed(kept bool) {
	if !kept {
		t.unkept.Add(-1)
	}
}

// Changed makes the reader look probes up by their numbers again. Any goroutine may call it.
func (t *Reader) Changed() { t.changes.Add(1) }

// abandoned reports whether the thread of an unfinished record has ended or, if signals were not held, has
// abandoned the record.
func (t *Reader) abandoned(u ring.Unfinished) bool {
	if tid := u.TID; tid != 0 {
		thread := procfs.Thread(t.from.Pid, t.Numbers.Outside(tid))
		if t.Owners != nil {
			thread = procfs.Process(int(tid))
		}
		_, err := os.Stat(string(thread))
		if errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return t.from.Left(u)
}

// Reading reports whether Start was called, and Finish was not. Any goroutine may call it.
func (t *Reader) Reading() bool {
	t.reading.mu.Lock()
	defer t.reading.mu.Unlock()
	return t.reading.done != nil
}

// Join adds the reader to the session's order of hits: from now on, no hit of another is passed on before this
// reader has come as far. Start does it, too. Readers whose processes have hits already all join before the first
// is started.
func (t *Reader) Join() { t.from.Out.order.Join(&t.stream) }

// Start begins to read, on a goroutine of its own. The returned context ends when reading does.
func (t *Reader) Start(ctx context.Context) context.Context {
	out := t.from.Out
	out.mu.Lock()
	sink := out.sink
	out.mu.Unlock()
	t.keepBy(sink)
	t.blocks.to, _ = sink.(results.BlockSink)
	t.Join()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	t.reading.mu.Lock()
	t.reading.cancel, t.reading.done = cancel, done
	t.reading.mu.Unlock()
	go func() {
		defer close(done)
		if err := t.Rings.Run(ctx, t.emit); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			out.Fail(err)
		}
	}()
	return ctx
}

// Halt ends reading. Records that are still in the rings stay there. Any goroutine may call it, also beside Finish.
func (t *Reader) Halt() { t.reading.halt() }

// Finish ends reading, after it has read all records in the rings. The probes must be switched off.
func (t *Reader) Finish() error {
	if !t.reading.halt() {
		return nil
	}
	t.reading.forget()
	_, err := t.Rings.Finish(t.emit)
	if t.keep != nil {
		t.keep.to.Over()
	}
	return err
}

// Part removes the reader from the session's order of hits, so that no other waits for it. It has passed on all
// its hits.
func (t *Reader) Part() { t.from.Out.order.Part(&t.stream) }

// emit turns a record into a hit for the sink, or adds it to a block for a BlockSink.
func (t *Reader) emit(r *ring.Record) error {
	p := t.recentProbe(r.ID)
	if p == nil {
		return nil
	}
	out := t.from.Out
	if t.blocks.to != nil && p.bare() && !out.order.Many() {
		t.collect(p, r)
		return nil
	}
	t.giveBlock() // the hits before this one
	out.mu.Lock()
	defer out.mu.Unlock()
	if p.Deliver == nil && (out.full || out.sink == nil) {
		p.Counts.Dropped.Add(1)
		return nil
	}
	h := &t.hit
	*h = results.Hit{Time: uint64(r.Time), CPU: r.CPU}
	h.PID, h.TID, h.Comm = t.whose(r)
	data, ok := p.describe(h, r.Data)
	behind := h.IP
	if ok && p.Watches {
		var a Access
		a, data, ok = cutAccess(data)
		h.IP, behind = a.Did, a.Behind
	}
	if !ok {
		p.Counts.Lost.Add(1)
		return nil
	}
	if p.Program.Stack != nil {
		t.stack(p, h, data, behind)
	}
	h.Data = t.times(p, data)
	switch {
	case p.Deliver != nil:
		if err := p.Deliver(h); err != nil {
			out.fail(err)
		}
	case out.order.Many():
		out.order.Put(&t.stream, p, h, r.TSC)
	default:
		out.give(p, h)
	}
	return nil
}

// whose returns the process and thread of a record, with the numbers of kprobe's namespace, and the thread's name.
func (t *Reader) whose(r *ring.Record) (pid, tid int, comm string) {
	tid = t.Numbers.Outside(r.TID)
	return t.Owners.Of(tid, t.from.Pid), tid, t.recent.names.At(uint32(tid), uint64(r.Time))
}

// times converts the time stamps that detours have recorded as values to nanoseconds.
func (t *Reader) times(p *Probe, data []byte) []byte {
	cal := t.Rings.Calibration()
	if len(p.Times) == 0 || cal == nil {
		return data
	}
	t.vals = append(t.vals[:0], data...)
	for _, off := range p.Times {
		if off+8 <= len(t.vals) {
			b := t.vals[off:]
			binary.LittleEndian.PutUint64(b, uint64(cal.NS(binary.LittleEndian.Uint64(b))))
		}
	}
	return t.vals
}

// polled runs after each look at the rings. It passes to the sink all hits that no older hit of any process can
// follow.
func (t *Reader) polled() {
	given := t.Rings.Given()
	if cal := t.Rings.Calibration(); cal != nil && given > 0 {
		t.stream.Until(uint64(cal.NS(given)))
	}
	if t.from.Out.order.Many() {
		t.from.Out.GiveOrdered(false)
	}
	t.from.Looked()
}

// Given is the time stamp up to which the sink has all hits (ring.Reader.Settled). Any goroutine may call it.
func (t *Reader) Given() uint64 {
	given := t.Rings.Settled()
	if at := t.stream.Queued(); at != 0 {
		return min(at, given)
	}
	return given
}

// tick does the work of a look for a reader whose sink is slow: other terminals see its counters, and their
// requests are answered.
func (t *Reader) tick() {
	t.Rings.LookStale()
	t.from.Looked()
}
