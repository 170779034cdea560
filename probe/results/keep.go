package results

import (
	"kprobe/fetch"
	"kprobe/symbols"
)

// Keeper is a Sink that can take the records of a process as they lie in its rings, at a
// fraction of the cost of hits.
type Keeper interface {
	Sink
	// Keep is called once for each process. nil means that the sink wants hits.
	Keep(src RecordSource) RecordKeeper
}

// RecordKeeper takes the records of one process. While one of the process's probes has no
// KeptProbe, its hits go to the Sink instead. One goroutine calls its methods; those of other
// processes may be called at the same time.
type RecordKeeper interface {
	// Take takes records of a CPU (ring.Taker). An error ends the trace.
	Take(cpu int, b []byte) error
	// Until says that no record with an older time stamp will come (ring.Taker).
	Until(tsc uint64) error
	// Over says that no more records will come.
	Over()
}

// RecordSource answers a RecordKeeper's questions about the records that it got, during Take.
type RecordSource interface {
	PID() int
	Space() *symbols.Space
	// Generation changes when a number may have been given to another probe.
	Generation() uint64
	// Probe returns the probe of a number, the same pointer as long as it is the same
	// probe; nil if there is none whose records can be kept.
	Probe(id uint32) *KeptProbe
	// Thread returns the number and the name of a thread, given its number in a record.
	Thread(tid uint32) (number int, comm string)
	// Took says that n records of a probe were kept or, if kept is false, lost.
	Took(id uint32, n uint64, kept bool)
}

// KeptProbe is a probe whose records are kept.
type KeptProbe struct {
	Event   *Event
	Program *fetch.Program // Standalone
	Addr    symbols.Addr
	Func    string // readable name of the function, of returns
	// Times are the offsets of values that are raw time stamps.
	Times []int
}
