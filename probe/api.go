package probe

import (
	"context"
	"os"
	"syscall"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/assess"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Options say how a session probes. The zero value is kprobe's default. Its fields are
// documented at engine.Options.
type Options = engine.Options

// Wait says which processes a session takes that begin while it runs. Its fields are
// documented at engine.Wait.
type Wait = engine.Wait

// The least and the largest Options.RingSize.
const (
	MinRing = ring.MinRingSize
	MaxRing = ring.MaxRingSize
)

// Command is a program that a session starts.
type Command struct {
	Path                  string   // file to execute, already looked up
	Args                  []string // argv, Args[0] included
	Env                   []string // nil is this process's environment
	Dir                   string   // "" is this process's folder
	Stdin, Stdout, Stderr *os.File // nil is /dev/null
	// Group is the process group to start it in; 0 is this process's.
	Group int
	// Ignored are signals that this process ignores and the program is not to.
	Ignored []syscall.Signal
}

// What a session gives, which package output prints.
type (
	Event = results.Event
	Hit   = results.Hit
	Sink  = results.Sink
	// Keeper is a Sink that can take records as they are.
	Keeper       = results.Keeper
	KeptProbe    = results.KeptProbe
	RecordSource = results.RecordSource
	RecordKeeper = results.RecordKeeper
	EndReason    = results.EndReason
	Stats        = results.Stats
	// ProcessStats are counters of one process.
	ProcessStats = results.ProcessStats
	Summary      = results.Summary
	Interposed   = results.Interposed
	Death        = results.Death
	Kind         = results.Kind
	Line         = results.Line
	Listing      = results.Listing
	// Tactic is how a probe is put into the text.
	Tactic = plan.Tactic
)

// LeftOut is a probe that can't be left alone.
type LeftOut = engine.LeftOut

// Injection is what a session does to calls.
type Injection = engine.Injection

// ErrStop is returned by a Sink that has seen enough.
var ErrStop = results.ErrStop

// The reasons a trace ends.
const (
	EndTarget  = results.EndTarget
	EndContext = results.EndContext
	EndSink    = results.EndSink
)

// The kinds of probe, from the dearest to the cheapest.
const (
	KindRefused    = results.KindRefused
	KindBreakpoint = results.KindBreakpoint
	KindBoosted    = results.KindBoosted
	KindShortJump  = results.KindShortJump
	KindGuarded    = results.KindGuarded
	KindJump       = results.KindJump
)

// Tactics that a caller tells apart: no other is no jump.
const (
	TacticRefused = plan.Refused
	// TacticDebugRegister is of what is watched, by w definitions.
	TacticDebugRegister = plan.DebugRegister
	TacticBreakpoint    = plan.Breakpoint
)

// Recover removes what a killed kprobe left in processes: breakpoints, jumps, return
// trampolines, the fallback handler and mapped memory. It also looks into the processes
// that these have made since, which have copies of it all. It returns the processes in
// which it found something. A process that is still traced is left alone, and is a
// *TracedError; a process that has ended is no error. It attaches to the processes, as a
// session does, and so needs the right to trace them.
func Recover(ctx context.Context, pids []int) (recovered []int, err error) {
	return area.Recover(ctx, pids)
}

// Checked is what Check found out about a definition.
type Checked = assess.Checked

// Check says whether a definition can be armed, as far as files tell: its
// places exist and start instructions that can run out of line, its arguments
// can be fetched there. It works on files as on processes and touches neither;
// memory that differs from its file shows only when the probe is armed.
//
// Errors are *DefError around those of Space.Resolve, *BoundaryError,
// *RefusedError and *fetch.SyntaxError.
func Check(space *symbols.Space, d *fetch.Def) (*Checked, error) { return assess.Check(space, d) }

// Inspect lists the instructions of the function at a place, and for each how
// it would be probed or why it can't be, as if it were the only one. A glob
// lists every function that it matches. It works on files as on processes and
// touches neither. A file's surroundings are taken to be free.
//
// each is called with one function after the other, in order of the places, on the
// caller's goroutine; the listing is its to keep. An error of each ends Inspect,
// which returns it. Other errors are those of Space.Resolve, and *BoundaryError for an
// offset inside an instruction.
func Inspect(space *symbols.Space, p symbols.Place, each func(*Listing) error) error {
	return assess.Inspect(space, p, each)
}
