package results

import (
	"kprobe/fetch"
	"kprobe/symbols"
)

// Keeper is a Sink that can take the records of a process as they lie in its rings: at a
// fraction of what hits cost.
type Keeper interface {
	Sink
	// Keep is asked once for each process. nil: it wants hits.
	Keep(src RecordSource) RecordKeeper
}

// RecordKeeper takes the records of one process. While one of the process's probes has
// no KeptProbe, its hits come to the Sink instead. Its methods are called by one
// goroutine, beside those of other processes.
type RecordKeeper interface {
	// Take takes records of a CPU (ring.Taker). An error ends the trace.
	Take(cpu int, b []byte) error
	// Until says that no record with an older time stamp comes (ring.Taker).
	Until(tsc uint64) error
	// Over says that no more come at all.
	Over()
}

// RecordSource is what a RecordKeeper asks about the records that it has got, within Take.
type RecordSource interface {
	PID() int
	Space() *symbols.Space
	// Generation changes when a number may have become another probe's.
	Generation() uint64
	// Probe gives the probe of a number, the same pointer as long as it is the same
	// probe; nil where there is none whose records can be kept.
	Probe(id uint32) *KeptProbe
	// Thread gives the number and the name of a thread by the number in a record.
	Thread(tid uint32) (number int, comm string)
	// Took says that n records of a probe were kept, or, without kept, that they are lost.
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
