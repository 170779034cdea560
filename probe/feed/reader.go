package feed

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"

	"kprobe/internal/procfs"
	"kprobe/probe/order"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/threads"
	"kprobe/symbols"
)

// Source says whose records a Reader reads, and whom it asks.
type Source struct {
	Pid   int
	Space *symbols.Space
	// Mem is the memory file of Layout, as it is mapped.
	Mem    []byte
	Layout *ring.Layout
	Out    *Outlet
	// Forks says that children record into the rings, too.
	Forks bool
	// Probe gives what is known of the probe that has a number; nil: none has it. It may
	// be called by any goroutine.
	Probe func(id uint32) *Probe
	// Busy is as in ring.Options.
	Busy func() uint64
	// Left reports whether a thread that lives has left its unfinished record for good.
	Left func(tid uint32) bool
	// Looked is called after each look at the rings, and by Outlet.Tick.
	Looked func()
}

// Reader reads the rings of a process and of those in its memory. What isn't said of a
// method belongs to one goroutine: the reader's own from Start to Halt or Finish.
type Reader struct {
	from    Source
	Rings   *ring.Reader
	Numbers *threads.Numbers // of its threads; in records they are those of its namespace
	Names   *threads.Names
	// Owners tells of which process a thread is, where children record into the rings; nil:
	// they don't.
	Owners *threads.Owners
	// Trampolines are return trampolines that stacks may have.
	Trampolines Trampolines

	changes    atomic.Uint64 // how often a number stopped being a probe's, or its probe went
	unkept     atomic.Int64  // probes whose records can't be kept
	generation atomic.Uint64 // how often a number became a probe's: a recording has to describe it

	recent recent
	hit    results.Hit
	vals   []byte
	walk   stackWalk
	keep   *keeping // takes records as they are, while none is unkept; nil: the sink wants hits
	blocks blocks
	stream order.Stream // of its hits, in the session's order

	cancel context.CancelFunc
	done   chan struct{} // nil: it doesn't read
}

// NewReader makes a reader. Its errors are those of ring.NewReader.
func NewReader(from Source) (*Reader, error) {
	t := &Reader{from: from, Numbers: threads.NumbersOf(from.Pid), Names: threads.NewNames(from.Pid)}
	if from.Forks {
		t.Owners = threads.NewOwners(from.Pid)
		t.Names.Others()
		t.unkept.Add(1) // a kept record is of the process
	}
	t.recent.names = threads.NewRecent(t.Names)
	t.stream.Tick = t.tick
	var err error
	t.Rings, err = ring.NewReader(from.Mem, from.Layout, ring.Options{
		Abandoned: t.abandoned, Busy: from.Busy, Polled: t.polled, Given: t.giveBlock, Taker: t.taker,
	})
	return t, err
}

// Added takes note of a probe that has got a number. Any goroutine may call it.
func (t *Reader) Added(p *Probe) {
	if p.Kept == nil {
		t.unkept.Add(1)
	}
	t.generation.Add(1)
}

// Removed takes note of a probe that has no number any more.
func (t *Reader) Removed(p *Probe) {
	if p.Kept == nil {
		t.unkept.Add(-1)
	}
}

// Changed has the reader ask anew for probes by their numbers. Any goroutine may call it.
func (t *Reader) Changed() { t.changes.Add(1) }

// abandoned reports whether a thread that left a record unfinished is gone, or, where
// signals were not held, went on elsewhere.
func (t *Reader) abandoned(tid uint32) bool {
	if tid != 0 {
		thread := procfs.Thread(t.from.Pid, t.Numbers.Outside(tid))
		if t.Owners != nil {
			thread = procfs.Process(int(tid))
		}
		_, err := os.Stat(string(thread))
		if errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return t.from.Left(tid)
}

// Reading reports whether a goroutine reads: Start was called, and not Finish.
func (t *Reader) Reading() bool { return t.done != nil }

// Start begins to read, on a goroutine of its own. The context that it gives ends when
// reading does.
func (t *Reader) Start(ctx context.Context) context.Context {
	out := t.from.Out
	out.mu.Lock()
	sink := out.sink
	out.mu.Unlock()
	t.keepBy(sink)
	t.blocks.to, _ = sink.(results.BlockSink)
	out.order.Join(&t.stream)
	ctx, t.cancel = context.WithCancel(ctx)
	t.done = make(chan struct{})
	go func() {
		defer close(t.done)
		if err := t.Rings.Run(ctx, t.emit); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			out.Fail(err)
		}
	}()
	return ctx
}

// Halt ends reading and leaves what is in the rings.
func (t *Reader) Halt() {
	if t.done != nil {
		t.cancel()
		<-t.done
	}
}

// Finish ends reading and takes what is left in the rings; the probes are
// disabled.
func (t *Reader) Finish() error {
	if t.done == nil {
		return nil
	}
	t.Halt()
	t.done = nil
	_, err := t.Rings.Finish(t.emit)
	if t.keep != nil {
		t.keep.to.Over()
	}
	return err
}

// Part has nobody wait for the reader's hits any more: it has given all.
func (t *Reader) Part() { t.from.Out.order.Part(&t.stream) }

// emit turns a record into a hit, or leaves that to who takes blocks of them.
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
	t.giveBlock() // those that came before it
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

// whose tells of which thread a record is, by the numbers of this side, and its name.
func (t *Reader) whose(r *ring.Record) (pid, tid int, comm string) {
	tid = t.Numbers.Outside(r.TID)
	return t.Owners.Of(tid, t.from.Pid), tid, t.recent.names.At(uint32(tid), uint64(r.Time))
}

// times converts the time stamps that detours leave in values.
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

// polled runs after each look at the rings: it gives the sink what no older hit of any
// process can follow.
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

// Given is a time stamp before which every hit that was recorded then is with the sink
// (ring.Reader.Settled). Any goroutine may call it.
func (t *Reader) Given() uint64 {
	given := t.Rings.Settled()
	if at := t.stream.Queued(); at != 0 {
		return min(at, given)
	}
	return given
}

// tick has other terminals see the hits of a reader that is kept by the sink, and be
// answered.
func (t *Reader) tick() {
	t.Rings.LookStale()
	t.from.Looked()
}
