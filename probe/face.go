package probe

import (
	"errors"
	"os"
	"syscall"
	"time"

	"kprobe/fetch"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Options say how a session probes. The zero value is kprobe's default.
type Options struct {
	// NoOptimize keeps every probe a breakpoint.
	NoOptimize bool
	// MaxActive is the number of instances of return probes whose definition
	// names none; 0 is the kernel's default, max(10, 2*CPUs).
	MaxActive int
	// Follow probes the children too that the target forks.
	Follow bool
	// Pending says which definitions wait for their library where the process
	// has not mapped it, and are armed when it does; nil is none: they are
	// errors. It may be called by any goroutine.
	Pending func(d *fetch.Def) bool
	// CountOnly evaluates filters and counts hits, and gives none to the
	// sink (kprobe profile).
	CountOnly bool
	// Logf gets what -v prints: one line a call, without newline. nil drops it.
	Logf func(format string, args ...any)
	// Warnf gets what the user should know even without -v. nil drops it.
	Warnf func(format string, args ...any)
	// Touched is told every process that the session attaches to, before its
	// memory is changed. nil is none. It must not block.
	Touched func(pid int)
	// Files are shared with other sessions, and say where debug files are
	// found; nil is a Cache of the session's own.
	Files *symbols.Cache
}

// Command is a program that a session starts.
type Command struct {
	Path                  string   // file to execute, already looked up
	Args                  []string // argv, Args[0] included
	Env                   []string // nil is this process's environment
	Dir                   string   // "" is this process's folder
	Stdin, Stdout, Stderr *os.File // nil is /dev/null
}

// Event is a definition that a session holds: one name, one or more places.
type Event struct {
	Def   *fetch.Def // the first definition of that name
	Group string
	Name  string
	// Return reports whether hits are returns (r probes and %return).
	Return bool
}

// Hit is one hit of a probe. It and all that it points to are valid only
// until the sink returns.
type Hit struct {
	Event   *Event
	Program *fetch.Program // decodes Data; its Fields name the values
	Data    []byte         // argument data of the record, as Program.Decode takes it
	Space   *symbols.Space // names addresses of the process hit
	Time    uint64         // CLOCK_MONOTONIC in nanoseconds
	PID     int            // thread group
	TID     int            // thread
	CPU     int
	Comm    string // at most 15 bytes
	// IP is the probed address; at a return probe the entry of the function
	// that returns.
	IP symbols.Addr
	// Func is the readable (demangled) name of the function that returns; "" at
	// entry probes.
	Func string
	// RetIP is where a return probe's function returned to; 0 at entry probes.
	RetIP symbols.Addr
	// Stack is the user stack if the definition asks for one: the place (IP, or
	// RetIP), and then the return addresses of the calls that lead there.
	Stack []symbols.StackFrame
	// StackEnd says why the stack has no more frames.
	StackEnd symbols.StackEnd
}

// Sink takes hits. It is called by one goroutine at a time, in order of time
// over all processes, but for a hit that was written too late (ring.Options). An error ends the trace and comes back from Run; ErrStop ends it
// without one.
type Sink interface {
	Hit(h *Hit) error
}

// ErrStop is returned by a Sink that has seen enough.
var ErrStop = errors.New("enough hits")

// EndReason says why Run returned.
type EndReason uint8

// The reasons a trace ends.
const (
	EndTarget  EndReason = iota // every traced process has ended
	EndContext                  // the context was cancelled or timed out
	EndSink                     // the sink returned an error or ErrStop
)

// Stats are the counters of one event, summed over its places. They hold
// Hits = Recorded + Filtered + Lost; Missed hits are not in Hits.
type Stats struct {
	Event *Event
	// Places is where the event is armed now, in all processes; when none is
	// left, how many places it had at most.
	Places   int
	Hits     uint64 // times a place was reached (a return probe: times the function returned)
	Recorded uint64 // handed to the sink, or counted with CountOnly
	Filtered uint64 // the definition's filter said no
	Lost     uint64 // hit but not recorded
	// Unfinished are those of Lost whose record was begun and never finished, as
	// the thread was killed or jumped out of it. The others found the buffer full,
	// or were in it when the trace ended.
	Unfinished uint64
	// Missed is nmissed: calls that no return instance was free for, counted as
	// they are entered. Instances of calls that don't return (longjmp, an exception,
	// a thread's end) come back when they are needed: by the thread itself or, for
	// those of others, within two looks of the tracer, 10 ms after Missed grew or
	// 160 ms if it hadn't for long. Calls that find none until then are in it.
	Missed   uint64
	Disabled bool
	// Trapped is how many places, of those there were, are breakpoints now: their
	// hits stop the thread. It is 0 for the sessions of others.
	Trapped int
	// Age is how long ago the first of the places was armed. It is 0 for one's own
	// session.
	Age time.Duration
	// Place and Module are set by PlaceStats: the one place that the counters
	// are of, as SYM, SYM+0xOFF or 0xADDR, and the base name of its file, "" for
	// the program itself.
	Place, Module string
}

// Counts are the counters alone.
func (s *Stats) Counts() ring.Counts {
	return ring.Counts{Hits: s.Hits, Recorded: s.Recorded, Filtered: s.Filtered, Lost: s.Lost, Unfinished: s.Unfinished, Missed: s.Missed}
}

// Count adds counters to those that are there.
func (s *Stats) Count(c ring.Counts) {
	c.Add(s.Counts())
	s.Hits, s.Recorded, s.Filtered, s.Lost, s.Unfinished, s.Missed = c.Hits, c.Recorded, c.Filtered, c.Lost, c.Unfinished, c.Missed
}

// Merge adds what another session or process has for the same. It is Disabled
// when both are.
func (s *Stats) Merge(o *Stats) {
	s.Count(o.Counts())
	s.Places += o.Places
	s.Trapped += o.Trapped
	s.Age = max(s.Age, o.Age)
	s.Disabled = s.Disabled && o.Disabled
}

// Summary is what a trace did.
type Summary struct {
	Reason EndReason
	Stats  []Stats
	// Status is how the process that Start started ended; valid if HasStatus.
	Status    syscall.WaitStatus
	HasStatus bool
	// Alive are the processes that run on after Close.
	Alive []int
	// Unarmed are the events that never had a place and were not removed: what
	// they waited for did not come.
	Unarmed []*Event
}

// Kind is how a probe at an instruction works.
type Kind uint8

// The kinds of probe, from the dearest to the cheapest.
const (
	KindRefused    Kind = iota // can't be probed
	KindBreakpoint             // int3, the copy is single-stepped (k)
	KindBoosted                // int3, the copy jumps back (b)
	KindShortJump              // a short jump to a jump
	KindGuarded                // a jump over several instructions, guarded
	KindJump                   // a jump (o)
)

// String gives the name that show prints: "refused", "breakpoint",
// "short-jump", "guarded-jump" or "jump".
func (k Kind) String() string {
	switch k {
	case KindBreakpoint, KindBoosted:
		return "breakpoint"
	case KindShortJump:
		return "short-jump"
	case KindGuarded:
		return "guarded-jump"
	case KindJump:
		return "jump"
	}
	return "refused"
}

// Line is one instruction of a listing.
type Line struct {
	Addr   symbols.Addr
	Offset uint64 // from the function's start
	Bytes  []byte
	Text   string // Intel syntax
	Source string // FILE:LINE, "" where unknown
	Probe  Kind
	Tactic plan.Tactic // what makes it that kind
	Why    string      // why not something better, the reasons apart by "; "; "" at the best
}

// Listing is a function with its instructions.
type Listing struct {
	Func   symbols.Func
	Module *symbols.Module
	Name   string
	Asked  uint64 // offset of the place that was asked for
	Lines  []Line
}
