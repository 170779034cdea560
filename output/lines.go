package output

import (
	"errors"
	"sync"
	"time"

	"kprobe/probe/results"
	"kprobe/symbols"
)

// Lines of hits that come fast are formatted on several CPUs
//
// A hit's way, as batches go round:
//
//	free      a batch that nobody uses
//	open      Hit copies hits into it
//	handed    it is full, or BatchDelay old, or has a block of hits instead: a worker
//	          formats it, while the writer waits for it; batches are written in the
//	          order in which they were handed
//
// There are few batches. While all of them are handed Hit and Block wait, so that the rings
// fill up, and what has no room in them is counted as lost.

// BatchDelay is the longest time that a hit waits for others to be formatted with it.
const BatchDelay = 5 * time.Millisecond

// calm is the time from one hit to the next, in nanoseconds, from which on hits are
// formatted where they come: nothing is won by handing them on.
const calm = 100_000

// batchHits is how many hits are formatted at once. It is large enough that handing
// them on costs little beside formatting, which takes some 300 ns a hit.
const batchHits = 128

// batch is hits, with copies of what their feed uses again, and their lines.
type batch struct {
	block results.Block // nil: it is of hits
	most  int           // of the block's hits
	hits  []results.Hit
	data  []byte
	stack []symbols.StackFrame
	lines []byte
	err   error // a hit that could not be formatted; lines has those before it
	ready chan struct{}
}

func (b *batch) add(h *results.Hit) {
	b.hits = append(b.hits, *h)
	c := &b.hits[len(b.hits)-1]
	from := len(b.data)
	b.data = append(b.data, h.Data...)
	c.Data = b.data[from:len(b.data):len(b.data)]
	if h.Stack != nil {
		from = len(b.stack)
		b.stack = append(b.stack, h.Stack...)
		c.Stack = b.stack[from:len(b.stack):len(b.stack)]
	}
}

func (b *batch) clear() {
	clear(b.hits) // events and their processes may go
	b.hits, b.data, b.stack, b.lines, b.err = b.hits[:0], b.data[:0], b.stack[:0], b.lines[:0], nil
}

// lineWorkers format batches on several CPUs. take, takeBlock and close may be called by one
// goroutine at a time.
type lineWorkers struct {
	w     *Writer
	free  chan *batch
	work  chan *batch
	queue chan *batch // in order
	ended sync.WaitGroup

	mu    sync.Mutex
	open  *batch // guarded by mu
	timer *time.Timer
	under int   // guarded by mu: how many batches are handed
	err   error // guarded by mu: the first failure
}

// newLineWorkers starts workers, each with a formatter as f, of its own.
func newLineWorkers(w *Writer, f *Formatter, workers int) *lineWorkers {
	n := 2*workers + 2
	l := &lineWorkers{w: w, free: make(chan *batch, n), work: make(chan *batch, n), queue: make(chan *batch, n)}
	for range n {
		l.free <- &batch{ready: make(chan struct{}, 1)}
	}
	l.timer = time.AfterFunc(time.Hour, l.tick)
	l.timer.Stop()
	for range workers {
		own := Formatter{Form: f.Form, Clock: f.Clock, Lines: f.Lines, Signatures: f.Signatures}
		l.ended.Go(func() {
			for b := range l.work {
				b.format(&own)
			}
		})
	}
	l.ended.Go(l.write)
	return l
}

func (b *batch) format(f *Formatter) {
	if b.block != nil {
		b.lines, b.err = f.appendBlock(b.lines, b.block, b.most)
		b.block.Over()
		b.block = nil
	}
	for i := range b.hits {
		if b.lines, b.err = f.Append(b.lines, &b.hits[i]); b.err != nil {
			break
		}
	}
	b.ready <- struct{}{}
}

// appendBlock appends the lines of the first hits of a block.
func (f *Formatter) appendBlock(dst []byte, block results.Block, most int) ([]byte, error) {
	err := block.Each(func(h *results.Hit) (err error) {
		if most == 0 {
			return errEnough
		}
		most--
		dst, err = f.Append(dst, h)
		return err
	})
	if err == errEnough {
		err = nil
	}
	return dst, err
}

// errEnough ends the reading of a block.
var errEnough = errors.New("enough of a block")

// write writes the batches in order, until queue is closed.
func (l *lineWorkers) write() {
	for b := range l.queue {
		<-b.ready
		var err error
		if len(b.lines) > 0 {
			_, err = l.w.Write(b.lines)
		}
		if err == nil {
			err = b.err
		}
		b.clear()
		l.mu.Lock()
		l.under--
		if l.err == nil {
			l.err = err
		}
		l.mu.Unlock()
		l.free <- b
	}
}

// take takes a hit, unless it is a slow one and no other is on its way: that one may be
// written at once. It returns the failure of an earlier one.
func (l *lineWorkers) take(h *results.Hit, fast bool) (taken bool, err error) {
	l.mu.Lock()
	if l.err != nil || !fast && l.open == nil && l.under == 0 {
		err = l.err
		l.mu.Unlock()
		return false, err
	}
	if l.open == nil {
		l.mu.Unlock()
		b := <-l.free
		l.mu.Lock()
		l.open = b
		l.timer.Reset(BatchDelay)
	}
	l.open.add(h)
	if len(l.open.hits) == batchHits {
		l.hand()
	}
	l.mu.Unlock()
	return true, nil
}

// takeBlock takes the first hits of a block, behind those that were taken before. It
// returns the failure of an earlier one, and the block is not taken then.
func (l *lineWorkers) takeBlock(block results.Block, most int) error {
	l.mu.Lock()
	if l.open != nil {
		l.hand()
	}
	err := l.err
	l.mu.Unlock()
	if err != nil {
		block.Over()
		return err
	}
	b := <-l.free
	b.block, b.most = block, most
	l.mu.Lock()
	l.pass(b)
	l.mu.Unlock()
	return nil
}

// idle reports whether no hit is on its way.
func (l *lineWorkers) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && l.open == nil && l.under == 0
}

// hand gives the open batch to the workers. mu is held.
func (l *lineWorkers) hand() {
	l.timer.Stop()
	b := l.open
	l.open = nil
	l.pass(b)
}

// pass gives a batch to the workers and has it written behind those before. mu is held.
func (l *lineWorkers) pass(b *batch) {
	l.under++
	l.queue <- b // there is room for all batches
	l.work <- b
}

func (l *lineWorkers) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		l.hand()
	}
}

// close writes what is left and ends the workers. It returns the first failure, which
// take may have returned already.
func (l *lineWorkers) close() error {
	l.tick()
	close(l.work)
	close(l.queue)
	l.ended.Wait()
	return l.err
}
