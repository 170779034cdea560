package feed

import (
	"errors"
	"sync"
	"time"

	"kprobe/probe/order"
	"kprobe/probe/results"
)

// Outlet is where the hits of a session come out: its sink, which takes one after the
// other, in order of time over all processes. It may be used by several goroutines.
type Outlet struct {
	end   func()              // has the run end soon
	order order.Order[*Probe] // of hits of several processes
	spare chan *block         // blocks of hits that nobody uses

	mu    sync.Mutex // held while the sink has its turn
	sink  results.Sink
	full  bool // it wants no more
	ended bool // the run is to end by what the sink returned, or what broke the reading
	err   error
}

// NewOutlet makes one without a sink. end has the run that is going on end soon; it is called
// in the sink's turn.
func NewOutlet(end func()) *Outlet {
	return &Outlet{end: end, spare: make(chan *block, spareBlocks)}
}

// Begin begins a run. Without a sink hits are counted only, or nobody's.
func (o *Outlet) Begin(sink results.Sink, countOnly bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink, o.full = sink, sink == nil && !countOnly
	o.ended, o.err = false, nil
}

// Fail ends the run by an error.
func (o *Outlet) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(err)
}

// fail is Fail in the sink's turn.
func (o *Outlet) fail(err error) {
	if o.ended {
		return
	}
	o.ended, o.err = true, err
	o.end()
}

// Ended reports whether the run ended by the sink, and by what error; ErrStop is none.
func (o *Outlet) Ended() (ended bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, results.ErrStop) {
		return o.ended, nil
	}
	return o.ended, o.err
}

// Over clears what the hits of a run needed.
func (o *Outlet) Over() { o.order.Clear() }

// AwaitTurn waits until the turn is over that the sink has, but not for longer than that.
func (o *Outlet) AwaitTurn(most time.Duration) {
	for end := time.Now().Add(most); !o.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return
		}
	}
	o.mu.Unlock()
}

// Tick has other terminals see the hits of readers that are kept by the sink.
func (o *Outlet) Tick() { o.order.Tick() }

// Joined is how many readers ever began to read.
func (o *Outlet) Joined() uint64 { return o.order.Joined() }

// GiveOrdered gives the sink the hits of several processes that have waited long enough, or
// all.
func (o *Outlet) GiveOrdered(all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for q := o.order.Next(all); q != nil; q = o.order.Next(all) {
		o.give(q.Probe, &q.Hit)
		o.order.Done(q)
		n++
	}
	if n > 0 {
		o.order.TellOldest()
	}
}

// give gives the sink a hit. mu is held.
func (o *Outlet) give(p *Probe, h *results.Hit) {
	if o.full {
		p.Counts.Dropped.Add(1)
		return
	}
	err := o.sink.Hit(h)
	if err == nil || errors.Is(err, results.ErrStop) {
		p.Counts.Recorded.Add(1)
	} else {
		p.Counts.Lost.Add(1)
	}
	if err != nil {
		o.full = true
		o.fail(err)
	}
}
