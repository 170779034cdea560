// Package order merges the hits of several processes into one order of time.
package order

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"

	"kprobe/probe/results"
)

// Order brings hits into one order of time. Each process's reader gives its own in
// order, as a Stream; what it has given waits here until the readers of all others
// have come as far. With one stream nothing waits.
//
// A hit waits for the slowest reader, which looks every few milliseconds. P is what
// the caller knows of a hit's probe. The zero value is ready, and may be used by
// several goroutines.
type Order[P any] struct {
	count  atomic.Int32  // of streams
	joined atomic.Uint64 // how many streams ever were

	mu      sync.Mutex
	streams []*Stream
	lanes   map[*Stream]*lane[P] // of streams that had hits
	heads   heads[P]             // those in which hits wait
	spare   []*Hit[P]
	seq     uint64
}

// Stream is what one reader gives.
type Stream struct {
	until  atomic.Uint64 // in ns of CLOCK_MONOTONIC: no older hit comes
	queued atomic.Uint64 // time stamp of the oldest hit that waits; 0 is none
	// Tick is called by Order.Tick.
	Tick func()
}

// Until says that no hit of the stream that is older will come any more, in ns of
// CLOCK_MONOTONIC.
func (s *Stream) Until(ns uint64) { s.until.Store(ns) }

// Queued is the time stamp of the oldest of the stream's hits that wait, or an older
// one; 0: none waits.
func (s *Stream) Queued() uint64 { return s.queued.Load() }

// Hit is a hit that waits, with copies of what its reader uses again.
type Hit[P any] struct {
	Hit   results.Hit
	Probe P

	tsc uint64
	seq uint64 // of hits of the same time: as they came
}

func (h *Hit[P]) before(o *Hit[P]) bool {
	if h.Hit.Time != o.Hit.Time {
		return h.Hit.Time < o.Hit.Time
	}
	return h.seq < o.seq
}

// lane is the hits of a stream that wait, the oldest at first.
type lane[P any] struct {
	from  *Stream
	hits  []*Hit[P]
	first int
}

func (l *lane[P]) head() *Hit[P] { return l.hits[l.first] }

// put adds a hit, and reports whether it is the oldest. Nearly all come in order.
func (l *lane[P]) put(h *Hit[P]) bool {
	if l.first > len(l.hits)/2 {
		n := copy(l.hits, l.hits[l.first:])
		clear(l.hits[n:])
		l.hits, l.first = l.hits[:n], 0
	}
	l.hits = append(l.hits, h)
	i := len(l.hits) - 1
	for ; i > l.first && h.before(l.hits[i-1]); i-- {
		l.hits[i] = l.hits[i-1]
	}
	l.hits[i] = h
	return i == l.first
}

// take takes the oldest hit, and reports whether none is left.
func (l *lane[P]) take() (h *Hit[P], empty bool) {
	h = l.hits[l.first]
	l.hits[l.first] = nil
	if l.first++; l.first == len(l.hits) {
		l.hits, l.first = l.hits[:0], 0
	}
	return h, len(l.hits) == 0
}

// heads is a heap (container/heap) of lanes that aren't empty, that with the oldest hit
// first.
type heads[P any] []*lane[P]

func (q heads[P]) Len() int           { return len(q) }
func (q heads[P]) Less(i, j int) bool { return q[i].head().before(q[j].head()) }
func (q heads[P]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *heads[P]) Push(x any) { *q = append(*q, x.(*lane[P])) }

// Pop implements heap.Interface.
func (q *heads[P]) Pop() any {
	old := *q
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return x
}

// Join has the others wait for a stream. It is called before its process runs on, or before any stream
// is read.
func (o *Order[P]) Join(t *Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.streams, t) {
		t.until.Store(0)
		o.streams = append(o.streams, t)
		o.count.Store(int32(len(o.streams)))
		o.joined.Add(1)
	}
}

// Part has nobody wait for a stream any more that has given all it had. What is queued stays
// in order, so there are still many.
func (o *Order[P]) Part(t *Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.streams, t); i >= 0 {
		o.streams = slices.Delete(o.streams, i, i+1)
	}
	if l := o.lanes[t]; l != nil && len(l.hits) == 0 {
		delete(o.lanes, t)
	}
}

// Tick calls the Tick of every stream, for readers that are kept by the sink.
func (o *Order[P]) Tick() {
	o.mu.Lock()
	streams := slices.Clone(o.streams)
	o.mu.Unlock()
	for _, t := range streams {
		t.Tick()
	}
}

// Joined is how many streams ever were.
func (o *Order[P]) Joined() uint64 { return o.joined.Load() }

// Many reports whether there is anything to bring into order.
func (o *Order[P]) Many() bool { return o.count.Load() > 1 }

// Put has a hit of a stream wait, whose time stamp is tsc.
func (o *Order[P]) Put(t *Stream, p P, h *results.Hit, tsc uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var q *Hit[P]
	if n := len(o.spare); n > 0 {
		q, o.spare = o.spare[n-1], o.spare[:n-1]
	} else {
		q = &Hit[P]{}
	}
	data, stack := q.Hit.Data, q.Hit.Stack
	q.Hit, q.Probe, q.tsc, q.seq = *h, p, tsc, o.seq
	q.Hit.Data = append(data[:0], h.Data...)
	q.Hit.Stack = append(stack[:0], h.Stack...)
	o.seq++
	l := o.lanes[t]
	if l == nil {
		if o.lanes == nil {
			o.lanes = map[*Stream]*lane[P]{}
		}
		l = &lane[P]{from: t}
		o.lanes[t] = l
	}
	waited := len(l.hits) > 0
	switch oldest := l.put(q); {
	case !waited:
		heap.Push(&o.heads, l)
	case oldest:
		heap.Init(&o.heads) // a hit that comes late is rare
	}
	if t.queued.Load() == 0 {
		t.queued.Store(max(tsc, 1))
	}
}

// maxSpare bounds how many hits are kept for being used again.
const maxSpare = 4096

// Next takes the oldest hit if nothing older can come any more; all says that
// nothing comes at all. It is nil if there is none. Give it back with Done.
func (o *Order[P]) Next(all bool) *Hit[P] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.heads) == 0 {
		return nil
	}
	l := o.heads[0]
	if !all {
		first := l.head().Hit.Time
		for _, t := range o.streams {
			if t.until.Load() <= first {
				return nil
			}
		}
	}
	q, empty := l.take()
	if !empty {
		heap.Fix(&o.heads, 0)
		return q
	}
	heap.Pop(&o.heads)
	if !slices.Contains(o.streams, l.from) {
		delete(o.lanes, l.from) // it has ended
	}
	return q
}

// Done takes a hit back that the sink has had.
func (o *Order[P]) Done(q *Hit[P]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.spare) < maxSpare {
		o.spare = append(o.spare, q)
	}
}

// TellOldest tells the streams which of their hits are the oldest that wait.
func (o *Order[P]) TellOldest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.streams {
		oldest := uint64(0)
		if l := o.lanes[t]; l != nil && len(l.hits) > 0 {
			oldest = max(l.head().tsc, 1)
		}
		t.queued.Store(oldest)
	}
}

// Clear forgets the streams, at the end of a run.
func (o *Order[P]) Clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams, o.lanes, o.heads, o.spare = nil, nil, nil, nil
	o.count.Store(0)
}
