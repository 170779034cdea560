package output

import "kprobe/probe/results"

// Trace is the results.Sink of kprobe trace: it prints each hit on a Writer. Like every Sink,
// it is not safe for concurrent use. Close it before the Writer.
type Trace struct {
	Writer *Writer
	Format Formatter
	// Limit is the number of hits after which the trace ends; 0 is none.
	Limit uint64
	// Workers is how many CPUs format hits that come fast. If it is 0 or 1, Hit formats
	// them itself, and Close has nothing to do.
	Workers int

	printed uint64
	line    []byte
	last    uint64       // the time of the hit before
	lines   *lineWorkers // nil until it is needed
}

// Hit implements results.Sink. It returns results.ErrStop with the last hit that
// Limit allows, and ErrClosed when nobody reads the output any more.
func (t *Trace) Hit(h *results.Hit) error {
	if t.Limit != 0 && t.printed >= t.Limit {
		return results.ErrStop
	}
	if err := t.print(h); err != nil {
		return err
	}
	t.printed++
	if t.printed == t.Limit {
		return results.ErrStop
	}
	return nil
}

// fewHits of a block are formatted at once: that takes less time than to hand them on.
const fewHits = 16

// Block implements results.BlockSink.
func (t *Trace) Block(b results.Block) (taken int, err error) {
	n := b.Len()
	if t.Limit != 0 {
		n = int(min(uint64(n), t.Limit-t.printed))
	}
	if n == 0 {
		b.Over()
		return 0, results.ErrStop
	}
	if err := t.printBlock(b, n); err != nil {
		return 0, err
	}
	t.printed += uint64(n)
	if t.printed == t.Limit {
		err = results.ErrStop
	}
	return n, err
}

// printBlock writes the lines of the first hits of a block, or has them written in their
// turn.
func (t *Trace) printBlock(b results.Block, most int) error {
	if t.lines == nil && most > fewHits && t.spreads() {
		t.lines = newLineWorkers(t.Writer, &t.Format, t.Workers)
	}
	if t.lines != nil && (most > fewHits || !t.lines.idle()) {
		return t.lines.takeBlock(b, most)
	}
	lines, err := t.Format.appendBlock(t.line[:0], b, most)
	b.Over()
	t.line = lines
	if len(lines) > 0 {
		if _, werr := t.Writer.Write(lines); werr != nil {
			return werr
		}
	}
	return err
}

// spreads reports whether lines may be formatted on several CPUs.
func (t *Trace) spreads() bool { return t.Workers > 1 && !t.Format.Clock.ordered() }

// print writes the line of a hit, or has it written in its turn.
func (t *Trace) print(h *results.Hit) error {
	fast := h.Time < t.last+calm
	t.last = h.Time
	if t.lines == nil && fast && t.spreads() {
		t.lines = newLineWorkers(t.Writer, &t.Format, t.Workers)
	}
	if t.lines != nil {
		if taken, err := t.lines.take(h, fast); taken || err != nil {
			return err
		}
	}
	line, err := t.Format.Append(t.line[:0], h)
	if err != nil {
		return err
	}
	t.line = line
	_, err = t.Writer.Write(line)
	return err
}

// Close writes the lines of the hits that are still in progress. It returns the first failure
// of a hit that was passed on, even if Hit has already returned it. It does not close Writer.
func (t *Trace) Close() error {
	if t.lines == nil {
		return nil
	}
	l := t.lines
	t.lines, t.Workers = nil, 0
	return l.close()
}

// Printed is the number of hits that were accepted for writing.
func (t *Trace) Printed() uint64 { return t.printed }
