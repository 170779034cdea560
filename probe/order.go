package probe

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"
)

// order brings the hits of several processes into one order of time. Each
// process's reader gives its own in order; what it has given waits here until
// the readers of all others have come as far. With one process nothing waits.
//
// A hit waits for the slowest reader, which looks every few milliseconds.
type order struct {
	count  atomic.Int32  // of feeds
	joined atomic.Uint64 // how many feeds ever were

	mu    sync.Mutex
	feeds []*feed
	queue hitQueue
	spare []*queuedHit
	seq   uint64
}

// queuedHit is a hit that waits, with copies of what the feed uses again.
type queuedHit struct {
	hit Hit
	p   *placed
	tsc uint64
	seq uint64 // of hits of the same time: as they came
}

// hitQueue is a heap (container/heap), the oldest hit first.
type hitQueue []*queuedHit

func (q hitQueue) Len() int { return len(q) }
func (q hitQueue) Less(i, j int) bool {
	if q[i].hit.Time != q[j].hit.Time {
		return q[i].hit.Time < q[j].hit.Time
	}
	return q[i].seq < q[j].seq
}
func (q hitQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *hitQueue) Push(x any) { *q = append(*q, x.(*queuedHit)) }

// Pop implements heap.Interface.
func (q *hitQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return x
}

// join has the others wait for a feed. It is called before its process runs on.
func (o *order) join(t *feed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.feeds, t) {
		t.until.Store(0)
		o.feeds = append(o.feeds, t)
		o.count.Store(int32(len(o.feeds)))
		o.joined.Add(1)
	}
}

// part has nobody wait for a feed any more that has given all it had. What is queued stays
// in order, so there are still many.
func (o *order) part(t *feed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.feeds, t); i >= 0 {
		o.feeds = slices.Delete(o.feeds, i, i+1)
	}
}

// tick has other terminals see the hits of feeds whose reader is kept by the sink,
// and be answered.
func (o *order) tick() {
	o.mu.Lock()
	feeds := slices.Clone(o.feeds)
	o.mu.Unlock()
	for _, t := range feeds {
		t.reader.LookStale()
		t.look()
	}
}

// many reports whether there is anything to bring into order.
func (o *order) many() bool { return o.count.Load() > 1 }

// put has a hit wait.
func (o *order) put(p *placed, h *Hit, tsc uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var q *queuedHit
	if n := len(o.spare); n > 0 {
		q, o.spare = o.spare[n-1], o.spare[:n-1]
	} else {
		q = &queuedHit{}
	}
	data, stack := q.hit.Data, q.hit.Stack
	q.hit, q.p, q.tsc, q.seq = *h, p, tsc, o.seq
	q.hit.Data = append(data[:0], h.Data...)
	q.hit.Stack = append(stack[:0], h.Stack...)
	o.seq++
	heap.Push(&o.queue, q)
	if p.feed.queued.Load() == 0 {
		p.feed.queued.Store(max(tsc, 1))
	}
}

// maxSpare bounds how many hits are kept for being used again.
const maxSpare = 4096

// next takes the oldest hit if nothing older can come any more; all says that
// nothing comes at all. Give it back with done.
func (o *order) next(all bool) *queuedHit {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil
	}
	if !all {
		first := o.queue[0].hit.Time
		for _, t := range o.feeds {
			if t.until.Load() <= first {
				return nil
			}
		}
	}
	return heap.Pop(&o.queue).(*queuedHit)
}

// done takes a hit back that the sink has had.
func (o *order) done(q *queuedHit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.spare) < maxSpare {
		o.spare = append(o.spare, q)
	}
}

// tellOldest tells the feeds which of their hits are the oldest that wait.
func (o *order) tellOldest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	oldest := map[*feed]uint64{}
	for _, q := range o.queue {
		if at, ok := oldest[q.p.feed]; !ok || q.tsc < at {
			oldest[q.p.feed] = max(q.tsc, 1)
		}
	}
	for _, t := range o.feeds {
		t.queued.Store(oldest[t])
	}
}

// clear forgets the feeds, at the end of a run.
func (o *order) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.feeds, o.queue, o.spare = nil, nil, nil
	o.count.Store(0)
}

// polled runs after each look of the feed's reader: it gives the sink what no
// older hit of any process can follow.
func (t *feed) polled() {
	given := t.reader.Given()
	if cal := t.reader.Calibration(); cal != nil && given > 0 {
		t.until.Store(uint64(cal.NS(given)))
	}
	if t.s.order.many() {
		t.s.giveOrdered(false)
	}
	t.look()
}

// giveOrdered gives the sink the hits that have waited long enough, or all.
func (s *Session) giveOrdered(all bool) {
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	n := 0
	for q := s.order.next(all); q != nil; q = s.order.next(all) {
		s.give(q.p, &q.hit)
		s.order.done(q)
		n++
	}
	if n > 0 {
		s.order.tellOldest()
	}
}

// given is a time stamp before which every hit of the target that was recorded then
// is with the sink (ring.Reader.Settled).
func (t *feed) given() uint64 {
	given := t.reader.Settled()
	if at := t.queued.Load(); at != 0 {
		return min(at, given)
	}
	return given
}
