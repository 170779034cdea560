package results

import (
	"syscall"
	"time"
)

// WhyMissed says in messages why calls were missed.
const WhyMissed = "no free return instance: a larger --maxactive helps, but not always where functions jump to one another in a circle"

// Stats are the counters of one event, summed over its places: Hits = Recorded + Filtered +
// Lost + Limited. Missed calls are not in Hits.
type Stats struct {
	Event *Event
	// Places is how many places are armed now, in all processes. If none is left, it is the
	// highest number that there was.
	Places   int
	Hits     uint64 // times a place was reached (a return probe: times the function returned)
	Recorded uint64 // handed to the sink, or counted with CountOnly
	Filtered uint64 // the definition's filter said no
	Lost     uint64 // hit but not recorded
	Limited  uint64 // left out, as the event had as many as it may have in that second
	// Unfinished are those of Lost whose record was begun and never finished, because the
	// thread was killed or jumped out of it. The others found the buffer full, or were in
	// it when the trace ended.
	Unfinished uint64
	// Missed is nmissed: calls for which no return instance was free, or that have come back by
	// jumps to a function in which a call waits, where only one can be followed. They are counted
	// when they are entered. Instances of calls that don't return (longjmp, an exception, a thread's end)
	// are reclaimed when they are needed: by the thread itself or, for those of other
	// threads, within two looks of the tracer, 10 ms after Missed grew, or 160 ms if it
	// hadn't grown for long. Until then calls that find no instance count as missed.
	Missed   uint64
	Disabled bool
	// Trapped is how many of these places are breakpoints now: their hits stop the thread.
	// It is 0 for the sessions of others.
	Trapped int
	// Watched is how many places are watched memory: accesses stop the thread, too. It is 0
	// for the sessions of others.
	Watched int
	// Age is the time since the first of the places was armed. It is 0 for one's own
	// session.
	Age time.Duration
	// Place and Module are set by PlaceStats: the one place that the counters belong to, as
	// SYM, SYM+0xOFF or 0xADDR, and the base name of its file, "" for the program itself.
	Place, Module string
}

// Counts are counters of hits alone.
type Counts struct {
	Hits, Recorded, Filtered, Lost, Limited, Unfinished, Missed uint64
}

// Counts are the counters alone.
func (s *Stats) Counts() Counts {
	return Counts{Hits: s.Hits, Recorded: s.Recorded, Filtered: s.Filtered, Lost: s.Lost, Limited: s.Limited, Unfinished: s.Unfinished, Missed: s.Missed}
}

// Count adds counters to those that are there.
func (s *Stats) Count(c Counts) {
	s.Hits += c.Hits
	s.Recorded += c.Recorded
	s.Filtered += c.Filtered
	s.Lost += c.Lost
	s.Limited += c.Limited
	s.Unfinished += c.Unfinished
	s.Missed += c.Missed
}

// Merge adds the counters of the same event in another session or process. The result is
// Disabled if both are.
func (s *Stats) Merge(o *Stats) {
	s.Count(o.Counts())
	s.Places += o.Places
	s.Trapped += o.Trapped
	s.Watched += o.Watched
	s.Age = max(s.Age, o.Age)
	s.Disabled = s.Disabled && o.Disabled
}

// ProcessStats are the counters of an event in one process that lives.
type ProcessStats struct {
	Event *Event
	PID   int
	Comm  string // of its first thread; "" where it isn't known
	Counts
}

// Summary says how a trace ended, and what it counted.
type Summary struct {
	Reason EndReason
	Stats  []Stats
	// Status is how the process of Start ended; valid if HasStatus.
	Status    syscall.WaitStatus
	HasStatus bool
	// Killed are the processes that a signal ended while they were traced, in that order;
	// at most the first 16.
	Killed []Death
	// Reached says that the probes were in some process, which may have ended.
	Reached bool
	// Alive are the processes that continue to run after Close.
	Alive []int
	// Unarmed are the events that never had a place and were not removed: what they waited
	// for did not come.
	Unarmed []*Event
	// Interposed are the events without a hit whose function is not the one that the
	// program calls by that name.
	Interposed []Interposed
}

// Interposed is an event whose function's name means another module's function to the program,
// such as that of an allocator with which it is linked.
type Interposed struct {
	Event *Event
	By    string // the module's name
	Main  bool   // it is the program itself
}

// Death is that a signal ended a process.
type Death struct {
	PID    int
	Signal syscall.Signal
}
