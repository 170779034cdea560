package feed

import (
	"errors"
	"sync"
	"time"

	"kprobe/probe/order"
	"kprobe/probe/results"
)

// Outlet passes the hits of a session to its sink, one after the other, in order of time over all processes.
// Several goroutines may use it.
type Outlet struct {
	end   func()              // makes the run end soon
	order order.Order[*Probe] // orders the hits of several processes
	spare chan *block         // unused blocks

	mu    sync.Mutex // held while the sink has its turn
	sink  results.Sink
	full  bool // the sink takes no more hits
	ended bool // the run ends because of what the sink returned or an error of reading
	err   error
}

// NewOutlet makes an Outlet without a sink. end must make the current run end soon. It is called in the sink's
// turn.
func NewOutlet(end func()) *Outlet {
	return &Outlet{end: end, spare: make(chan *block, spareBlocks)}
}

// Begin begins a run. Without a sink hits are only counted, if countOnly is set, or dropped.
func (o *Outlet) Begin(sink results.Sink, countOnly bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink, o.full = sink, sink == nil && !countOnly
	o.ended, o.err = false, nil
}

// Fail ends the run with an error.
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

// Ended reports whether the sink or Fail has ended the run, and with which error; it is nil for ErrStop.
func (o *Outlet) Ended() (ended bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, results.ErrStop) {
		return o.ended, nil
	}
	return o.ended, o.err
}

// Over frees what the hits of the run needed.
func (o *Outlet) Over() { o.order.Clear() }

// AwaitTurn waits until the sink's present turn is over, but at most for the given time.
func (o *Outlet) AwaitTurn(most time.Duration) {
	for end := time.Now().Add(most); !o.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return
		}
	}
	o.mu.Unlock()
}

// Tick makes the counters of readers whose sink is slow current, so that other terminals see them.
func (o *Outlet) Tick() { o.order.Tick() }

// Joined is the number of readers that ever began to read.
func (o *Outlet) Joined() uint64 { return o.order.Joined() }

// GiveOrdered passes to the sink those hits of several processes that no older hit can follow any more, or all.
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

// give passes a hit to the sink. mu is held.
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
