package results

import (
	"errors"

	"kprobe/symbols"
)

// MaxInside bounds the calls of a thread that Inside has.
const MaxInside = 256

// Inside says which calls the threads of a process are in.
type Inside struct {
	PID     int
	Comm    string
	Threads []*InsideThread // by number, the first one first
	More    int             // threads that were left out: there were too many
	// Deadlock are threads that wait for each other in a circle, each for what the next one
	// holds; nil if none was seen.
	Deadlock []int
	// Goroutines are those of a Go program that no thread is running. GoOwn counts those of
	// the runtime itself, which are left out, and GoMore those for which there was no room.
	Goroutines    []*Goroutine
	GoOwn, GoMore int
	GoError       error // ErrNoGoroutines
	// Unsampled is the reason why there are no samples of running threads; nil if there
	// are.
	Unsampled error
}

// InsideThread says which calls one thread is in.
type InsideThread struct {
	TID  int
	Comm string
	CPU  int
	// State is the letter of proc_pid_stat(5): R runs or waits for a CPU, S sleeps, D waits
	// uninterruptibly, T was stopped by a signal, t by a tracer.
	State byte
	// Since is how long it hasn't run, in ns; 0 means that it runs, or that this isn't
	// known. It is by the scheduler's clock, which leaves out the time that interrupts
	// took.
	Since  uint64
	Call   *SystemCall // the system call; nil: none
	Wait   string      // where in the kernel it waits, of threads in D; "" is not known
	Frames []InsideFrame
	End    symbols.StackEnd
	// Samples is the number of samples that Frames were made from; Frames are then what all
	// have in common. 0 means that Frames are from a copy of the stack.
	Samples int
	// Inner are the innermost functions of the samples, beyond what they have in common.
	Inner []FunctionCount
	// Moved says that the thread ran while it was looked at: Frames may be from several
	// moments.
	Moved bool
	Waits *Waiting // for whom it waits; nil is not known
	// Tracer is who traces it, of threads in t; 0 is not known.
	Tracer int
}

// InsideFrame is a call that a thread is in.
type InsideFrame struct {
	Addr   symbols.Addr
	Name   string // of the function, or the address
	Module string
	File   string // "" is not known
	Line   int
	// Inlined says that it is inlined into the function of the next outer frame.
	Inlined bool
	Signal  bool // the kernel's frame, between a handler and what it interrupted
	Guess   bool // found by a look through the stack: nothing says that it is right
	// Open is the call whose beginning a probe has seen; nil if none has.
	Open *OpenCall

	// Slot is where on the stack its return address lies; 0 is not known.
	Slot symbols.Addr
}

// FunctionCount is how often a function was met.
type FunctionCount struct {
	Name  string
	Times int
}

// Waiting says who has what a thread waits for.
type Waiting struct {
	What string // such as "mutex 0x55…"
	TID  int    // who has it; 0 is not a thread of this process
	Text string // who, where it is no thread
}

// SystemCall is a system call that a thread is in.
type SystemCall struct {
	Nr   uint64
	Name string
	// Args are its arguments, those that say most: "fd=5 socket:[77], timeout=100ms".
	Args   string
	Values [6]uint64 // as they are
}

// Goroutine is a goroutine that no thread is running at this moment.
type Goroutine struct {
	ID     uint64
	Addr   uint64 // of its runtime.g
	Status string // "waits", "can run"
	Reason string // what it waits for, as the runtime calls it; "" is not known
	// Since is a time of CLOCK_MONOTONIC, in ns, since when it has waited at least. The
	// runtime notes it when it collects garbage. 0 is not known.
	Since  uint64
	Frames []InsideFrame
	End    symbols.StackEnd
}

// ErrNoGoroutines says that the goroutines of a Go program aren't known, because the program
// has no debug information or an unknown version of the runtime.
var ErrNoGoroutines = errors.New("its goroutines aren't known: that takes debug information of the runtime (built without -ldflags=-w)")

// OpenCall is a call whose beginning a return probe has seen, and whose return it hasn't.
type OpenCall struct {
	TID   int // 0: not known, as of calls of goroutines
	G     uint64
	Func  string       // the function
	Event string       // GROUP/EVENT
	Entry uint64       // CLOCK_MONOTONIC, ns; 0 is not known
	Slot  symbols.Addr // where its return address lies; 0 of Go's, whose stacks move
	// Return is where it returns to, whatever lies in the slot.
	Return symbols.Addr
}
