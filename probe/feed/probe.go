package feed

import (
	"encoding/binary"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// Probe is what is to be known of a probe whose records are read. It isn't changed once
// there are any.
type Probe struct {
	Event   *results.Event
	Program *fetch.Program
	Counts  *Counts
	Space   *symbols.Space
	Addr    symbols.Addr
	Func    string // readable name of the function, for returns
	// Times are where, in its records, values of time are raw counts of the time stamp
	// counter; nil: they are nanoseconds, or there are none.
	Times []int
	// Watches says that each record has an Access behind its values.
	Watches bool
	// Deliver takes the hits of a probe whose function is called with them, by the
	// goroutine that reads, in the sink's turn; nil: they are the sink's. It counts them;
	// an error ends the run.
	Deliver func(h *results.Hit) error
	// Kept is what who keeps its records must know; nil: they become hits at once.
	Kept *results.KeptProbe
}

// Counts are what becomes of an event's records.
type Counts struct {
	Recorded atomic.Uint64 // given to the sink
	Lost     atomic.Uint64 // taken from a ring and not given
	Dropped  atomic.Uint64 // taken from a ring after the sink had ended
}

// NewProbe completes what is known of a probe.
func NewProbe(p Probe) *Probe {
	if p.Deliver == nil && !p.Watches && p.Program.Standalone() {
		p.Kept = &results.KeptProbe{Event: p.Event, Program: p.Program, Addr: p.Addr, Func: p.Func, Times: p.Times}
	}
	return &p
}

// bare reports whether a hit of the probe is made of its record alone.
func (p *Probe) bare() bool {
	return p.Deliver == nil && !p.Watches && p.Program.Stack == nil
}

// describe fills in what the hits of a probe have in common, and what is behind the values
// of a return. It gives the values; ok is false where the record is none of the probe's.
func (p *Probe) describe(h *results.Hit, data []byte) (vals []byte, ok bool) {
	h.Event, h.Program, h.Space, h.IP = p.Event, p.Program, p.Space, p.Addr
	if !p.Event.Return {
		return data, true
	}
	n := len(data) - detour.ReturnTail
	if n < 0 {
		return nil, false
	}
	h.RetIP, h.Func = symbols.Addr(binary.LittleEndian.Uint64(data[n:])), p.Func
	return data[:n], true
}

// Access is an access to memory that is watched, as it stands behind the values of its
// record.
type Access struct {
	Did    symbols.Addr // the instruction, or where it isn't known the one behind
	Behind symbols.Addr // the one behind
}

const accessSize = 16

// Append appends the access to a record.
func (a *Access) Append(rec []byte) []byte {
	rec = binary.LittleEndian.AppendUint64(rec, uint64(a.Did))
	return binary.LittleEndian.AppendUint64(rec, uint64(a.Behind))
}

// cutAccess takes an access off a record.
func cutAccess(data []byte) (a Access, rest []byte, ok bool) {
	n := len(data) - accessSize
	if n < 0 {
		return a, nil, false
	}
	a.Did = symbols.Addr(binary.LittleEndian.Uint64(data[n:]))
	a.Behind = symbols.Addr(binary.LittleEndian.Uint64(data[n+8:]))
	return a, data[:n], true
}
