package feed

import (
	"errors"

	"kprobe/probe/detour"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// Hits that are handed on in blocks
//
// Lines take longer to format than records to read, so a sink that formats them on several
// CPUs (results.BlockSink) gets the records of a look in blocks, and makes hits of them
// there. The goroutine that reads copies a record and tells whose it was, and takes the
// sink's turn once for a block. What needs more than the record, as stacks do, and what has
// to be brought into order with hits of other processes goes one by one.

// A block is full with so many records, or bytes of their data.
const (
	blockHits = 512
	blockData = 128 << 10
)

// spareBlocks are kept to be used again: a sink has some under way.
const spareBlocks = 16

// blocks are what a feed hands on. They belong to the goroutine that reads.
type blocks struct {
	to   results.BlockSink // nil: hits go one by one
	open *block            // nil: there is none
	runs []run             // whose hits are in it, in their order
}

// run is hits of one probe that come one behind the other.
type run struct {
	p *Probe
	n int
}

// block implements results.Block.
type block struct {
	back chan *block // where it goes when it is over
	hits []blockHit
	data []byte
	hit  results.Hit // that Each gives
}

// blockHit is a record of a block, and what is told of it.
type blockHit struct {
	p             *Probe
	comm          string
	time          uint64
	pid, tid, cpu int32
	off, n        uint32 // in data
}

// collect adds a record to the open block.
func (t *Reader) collect(p *Probe, r *ring.Record) {
	if p.Event.Return && len(r.Data) < detour.ReturnTail {
		p.Counts.Lost.Add(1)
		return
	}
	k := &t.blocks
	b := k.open
	if b == nil {
		b = t.from.Out.newBlock()
		k.open = b
	}
	data := r.Data
	if p.Times != nil {
		data = t.times(p, data)
	}
	pid, tid, comm := t.whose(r)
	b.hits = append(b.hits, blockHit{
		p: p, comm: comm, time: uint64(r.Time),
		pid: int32(pid), tid: int32(tid), cpu: int32(r.CPU),
		off: uint32(len(b.data)), n: uint32(len(data)),
	})
	b.data = append(b.data, data...)
	if last := len(k.runs) - 1; last >= 0 && k.runs[last].p == p {
		k.runs[last].n++
	} else {
		k.runs = append(k.runs, run{p, 1})
	}
	if len(b.hits) == blockHits || len(b.data) >= blockData {
		t.giveBlock()
	}
}

// giveBlock gives the sink the open block, if there is one.
func (t *Reader) giveBlock() {
	k := &t.blocks
	b := k.open
	if b == nil {
		return
	}
	k.open = nil
	out := t.from.Out
	out.mu.Lock()
	defer out.mu.Unlock()
	taken, lost := 0, 0
	if out.full {
		b.Over()
	} else {
		var err error
		n := b.Len()
		if taken, err = k.to.Block(b); err != nil {
			out.full = true
			out.fail(err)
			if !errors.Is(err, results.ErrStop) {
				lost = min(1, n-taken)
			}
		}
	}
	for i := range k.runs {
		r := &k.runs[i]
		taken, lost = r.count(taken, lost)
		*r = run{} // the probe may go
	}
	k.runs = k.runs[:0]
}

// count counts a run of which the sink has taken hits, lost the next ones, and not wanted
// the rest. It gives what is left of both for the next run.
func (r *run) count(taken, lost int) (int, int) {
	recorded := min(taken, r.n)
	gone := min(lost, r.n-recorded)
	r.p.Counts.Recorded.Add(uint64(recorded))
	r.p.Counts.Lost.Add(uint64(gone))
	r.p.Counts.Dropped.Add(uint64(r.n - recorded - gone))
	return taken - recorded, lost - gone
}

// newBlock gives an empty block.
func (o *Outlet) newBlock() *block {
	select {
	case b := <-o.spare:
		return b
	default:
		return &block{back: o.spare, hits: make([]blockHit, 0, blockHits)}
	}
}

// Len implements results.Block.
func (b *block) Len() int { return len(b.hits) }

// Each implements results.Block.
func (b *block) Each(f func(h *results.Hit) error) error {
	h := &b.hit
	for i := range b.hits {
		x := &b.hits[i]
		*h = results.Hit{Time: x.time, PID: int(x.pid), TID: int(x.tid), CPU: int(x.cpu), Comm: x.comm}
		h.Data, _ = x.p.describe(h, b.data[x.off:x.off+x.n:x.off+x.n])
		if err := f(h); err != nil {
			return err
		}
	}
	return nil
}

// Over implements results.Block.
func (b *block) Over() {
	clear(b.hits) // their probes may go
	b.hits, b.hit = b.hits[:0], results.Hit{}
	if b.data = b.data[:0]; cap(b.data) > 4*blockData {
		b.data = nil
	}
	select {
	case b.back <- b:
	default:
	}
}
