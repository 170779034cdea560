package output

import "kprobe/probe/results"

// Trace is the results.Sink of kprobe trace: it prints each hit on a Writer. It
// is not safe for concurrent use, like every Sink.
type Trace struct {
	Writer *Writer
	Format Formatter
	// Limit is the number of hits after which the trace ends; 0 is none.
	Limit uint64

	printed uint64
	line    []byte
}

// Hit implements results.Sink. It returns results.ErrStop with the last hit that
// Limit allows, and ErrClosed when nobody reads the output any more.
func (t *Trace) Hit(h *results.Hit) error {
	if t.Limit != 0 && t.printed >= t.Limit {
		return results.ErrStop
	}
	line, err := t.Format.Append(t.line[:0], h)
	if err != nil {
		return err
	}
	t.line = line
	if _, err := t.Writer.Write(line); err != nil {
		return err
	}
	t.printed++
	if t.printed == t.Limit {
		return results.ErrStop
	}
	return nil
}

// Printed is the number of hits that were written.
func (t *Trace) Printed() uint64 { return t.printed }
