package feed

import (
	"encoding/binary"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// Probe is what a reader must know of a probe. It doesn't change after the probe's first record.
type Probe struct {
	Event   *results.Event
	Program *fetch.Program
	Counts  *Counts
	Space   *symbols.Space
	Addr    symbols.Addr
	Func    string // readable name of the function, for returns
	// Times are the offsets in its records of times that are values of the time stamp counter;
	// nil: times are nanoseconds, or there are none.
	Times []int
	// Watches says that each record has an Access behind its values.
	Watches bool
	// Deliver takes the probe's hits, and counts them, if a function is called with them; nil: the
	// sink takes them. The goroutine that reads calls it in the sink's turn. An error ends the
	// run.
	Deliver func(h *results.Hit) error
	// Kept is what a Keeper must know of the probe; nil: its records become hits at once.
	Kept *results.KeptProbe
}

// Counts count what became of an event's records.
type Counts struct {
	Recorded atomic.Uint64 // passed to the sink
	Lost     atomic.Uint64 // read from a ring, but not passed to the sink
	Dropped  atomic.Uint64 // read from a ring after the sink had ended
}

// Keepable reports whether the records of a probe can be kept as they are. delivered says that a function takes its
// hits, watches that it watches memory.
func Keepable(program *fetch.Program, delivered, watches bool) bool {
	return !delivered && !watches && program.Standalone()
}

// NewProbe completes a Probe: it sets Kept if the probe's records may be kept.
func NewProbe(p Probe) *Probe {
	if Keepable(p.Program, p.Deliver != nil, p.Watches) {
		p.Kept = &results.KeptProbe{Event: p.Event, Program: p.Program, Addr: p.Addr, Func: p.Func, Times: p.Times}
	}
	return &p
}

// bare reports whether a hit of the probe needs nothing but its record.
func (p *Probe) bare() bool {
	return p.Deliver == nil && !p.Watches && p.Program.Stack == nil
}

// describe fills in what the hits of a probe have in common, and the return address behind the values of a
// return. vals are the values. ok is false if the record can't be one of the probe's.
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

// Access is an access to watched memory. It is stored behind the values of the record.
type Access struct {
	Did    symbols.Addr // the instruction that made the access; if it isn't known, the one behind it
	Behind symbols.Addr // the instruction behind it
}

// AccessSize is how many bytes an access takes behind the values of a record.
const AccessSize = 16

// Append appends the access to a record.
func (a *Access) Append(rec []byte) []byte {
	rec = binary.LittleEndian.AppendUint64(rec, uint64(a.Did))
	return binary.LittleEndian.AppendUint64(rec, uint64(a.Behind))
}

// cutAccess removes the access from a record.
func cutAccess(data []byte) (a Access, rest []byte, ok bool) {
	n := len(data) - AccessSize
	if n < 0 {
		return a, nil, false
	}
	a.Did = symbols.Addr(binary.LittleEndian.Uint64(data[n:]))
	a.Behind = symbols.Addr(binary.LittleEndian.Uint64(data[n+8:]))
	return a, data[:n], true
}
