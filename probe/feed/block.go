package feed

import (
	"errors"

	"kprobe/probe/detour"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// Hits that are passed on in blocks
//
// Formatting a line takes longer than reading a record. So a sink that formats lines on several CPUs
// (results.BlockSink) gets the records of a look in blocks, and decodes them there. The goroutine that
// reads copies each record, adds its process and thread, and takes the sink's turn once for a block.
// Hits that need more than the record, such as stacks, and hits that must be ordered with those of
// other processes, are passed on one by one.

// A block is full if it has this number of records, or of bytes of their data.
const (
	blockHits = 512
	blockData = 128 << 10
)

// spareBlocks is the number of blocks that are kept for reuse, because a sink holds several at a time.
const spareBlocks = 16

// blocks is a reader's side of a BlockSink. It belongs to the goroutine that reads.
type blocks struct {
	to   results.BlockSink // nil: hits are passed on one by one
	open *block            // the block that is being filled; nil: none
	runs []run             // the probes of its hits, in their order
}

// run is a number of consecutive hits of one probe.
type run struct {
	p *Probe
	n int
}

// block implements results.Block.
type block struct {
	back chan *block // receives the block when the sink is done with it
	hits []blockHit
	data []byte
	hit  results.Hit // that Each gives
}

// blockHit is a record of a block, with its thread and its place in the block's data.
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

// giveBlock passes the open block to the sink, if there is one.
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
		*r = run{} // so that the probe can be collected
	}
	k.runs = k.runs[:0]
}

// count counts the hits of a run: taken of them were recorded, lost of the next ones were lost, and the rest
// was dropped because the sink has ended. It returns what remains of both numbers for the next run.
func (r *run) count(taken, lost int) (int, int) {
	recorded := min(taken, r.n)
	gone := min(lost, r.n-recorded)
	r.p.Counts.Recorded.Add(uint64(recorded))
	r.p.Counts.Lost.Add(uint64(gone))
	r.p.Counts.Dropped.Add(uint64(r.n - recorded - gone))
	return taken - recorded, lost - gone
}

// newBlock returns an empty block.
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
	clear(b.hits) // so that their probes can be collected
	b.hits, b.hit = b.hits[:0], results.Hit{}
	if b.data = b.data[:0]; cap(b.data) > 4*blockData {
		b.data = nil
	}
	select {
	case b.back <- b:
	default:
	}
}
