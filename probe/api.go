package probe

import (
	"context"
	"errors"
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

// Options configure a session. The zero value is kprobe's default. The fields:
//
//	NoOptimize bool                        every probe is a breakpoint
//	MaxActive int                          instances of a return probe; 0: as Active says
//	Active int                             the same if MaxActive is 0; 0: 1024
//	MaxText int                            bytes of a string that are shown; 0: fetch.MaxString
//	Follow bool                            children that the target forks are probed, too
//	Pending func(d *fetch.Def) bool        whether a definition may wait for its library; nil: none may
//	Expect []*fetch.Def                    definitions to look up before attaching
//	CountOnly bool                         hits are only counted
//	Bin func(ev *results.Event, prog *fetch.Program) *results.Bin
//	                                       how hits are counted by a number; nil: they are not
//	RingSize int                           bytes of each CPU's ring; 0: 2 MiB, or 32 MiB with stacks
//	Log *slog.Logger                       gets the session's messages; nil: none does
//	Touched func(pid int)                  called before a process's memory is changed
//	Armed func()                           called when a started command is armed
//	Signaled func(pid int, sig syscall.Signal)
//	                                       called when a process is sent a signal that ends a trace
//	Progress func(step string, n, of int)  called while places are found and jumps planned
//	Inject *Injection                      how calls are changed; nil: they are not
//	Limit uint32                           hits of an event that are recorded each second; 0: all
//	Expire time.Duration                   when probes switch themselves off; 0: never
//	Triggers []*fetch.Trigger              what hits do besides being recorded
//	Detach bool                            prepares the session for Session.Detach
//	LetGo bool                             processes are let go of while nothing changes
//	Keep string                            file for the memory file of detached probes; "": none
//	Wait *Wait                             which processes to take when they begin; nil: none
//	Version string                         version of the calling program, for the book
//	Files *symbols.Cache                   shared with other sessions; nil: the session's own
//
// The page of engine.Options says more about each: go doc kprobe/probe/engine.Options.
type Options = engine.Options

// Wait selects processes that begin while a session runs, and that the session takes. The fields:
//
//	Files []string                          files whose execution is wanted
//	Hold time.Duration                      longest time in execve; 0: starts.HoldTime
//	Names bool                              processes of other files may be wanted, too
//	Is func(pid int) bool                   whether a process runs a wanted program
//	Begun func(files, others starts.Means)  called when it is known how starts are noticed; nil: not
//
// The page of engine.Wait says more about each: go doc kprobe/probe/engine.Wait.
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
	// Ignored lists signals that this process ignores and the program should not.
	Ignored []syscall.Signal
}

// The results of a session, as plain data. Package output prints them.
type (
	// Event is a definition in a session: one name, one or more places.
	Event = results.Event
	// Hit is one hit of a probe. It is valid only until the sink returns.
	Hit = results.Hit
	// Sink receives the hits of Run.
	Sink = results.Sink
	// Keeper is a Sink that can take records as they lie in the rings, at a fraction of the
	// cost of hits.
	Keeper = results.Keeper
	// KeptProbe is a probe whose records a Keeper takes.
	KeptProbe = results.KeptProbe
	// RecordSource explains to a RecordKeeper the records that it gets.
	RecordSource = results.RecordSource
	// RecordKeeper takes the records of one process.
	RecordKeeper = results.RecordKeeper
	// EndReason says why Run returned.
	EndReason = results.EndReason
	// Stats are the counters of one event.
	Stats = results.Stats
	// ProcessStats are the counters of one event in one process.
	ProcessStats = results.ProcessStats
	// Summary is what Run returns: why it ended, and the final counters.
	Summary = results.Summary
	// Interposed is an event without hits, because the program calls another module's
	// function of that name.
	Interposed = results.Interposed
	// Death is a process that a signal killed.
	Death = results.Death
	// Kind says how a probe at an instruction works: refused, breakpoint, or some kind of
	// jump.
	Kind = results.Kind
	// Line is one instruction of a Listing.
	Line = results.Line
	// Listing is a function with its instructions, and how each can be probed.
	Listing = results.Listing
	// Tactic is the kind of patch that a probe's place has.
	Tactic = plan.Tactic
)

// LeftOut is a probe that can't be left alone, with the reason. Session.Detach returns them. The
// fields:
//
//	PID int               process
//	Event *results.Event  its event
//	Place string          SYM, SYM+0xOFF or 0xADDR; "": the whole event
//	Why string            the reason
type LeftOut = engine.LeftOut

// Injection says how a session changes calls, instead of only recording them. The fields:
//
//	Result *uint64       what a call returns at once; nil: the function is executed
//	Errno int32          written to errno before that; 0: none
//	Delay time.Duration  how long the thread waits at the entry; 0: not at all
//	Every uint64         each Nth call is changed; 0 and 1: all
//	Limit uint64         calls that are changed in all; 0: no limit
//
// The page of engine.Injection says more about each: go doc kprobe/probe/engine.Injection.
type Injection = engine.Injection

// ErrStop is what a Sink returns to end Run without an error.
var ErrStop = results.ErrStop

// The reasons a trace ends.
const (
	EndTarget  = results.EndTarget
	EndContext = results.EndContext
	EndSink    = results.EndSink
)

// The kinds of probe, from the most expensive to the cheapest.
const (
	KindRefused    = results.KindRefused
	KindBreakpoint = results.KindBreakpoint
	KindBoosted    = results.KindBoosted
	KindShortJump  = results.KindShortJump
	KindGuarded    = results.KindGuarded
	KindJump       = results.KindJump
)

// The tactics that are not jumps. All others are.
const (
	TacticRefused = plan.Refused
	// TacticDebugRegister is for watched memory (w definitions).
	TacticDebugRegister = plan.DebugRegister
	TacticBreakpoint    = plan.Breakpoint
)

// Recover removes what a killed kprobe left in processes: breakpoints, jumps, return
// trampolines, the fallback handler and mapped memory. It also cleans processes that these have
// forked since, which have copies of all that. Probes that were left alone on purpose
// (Session.Detach) stay.
//
// It returns the processes in which it found something. A process that is still traced is left
// alone, with a *TracedError. A process that has ended is no error. Recover attaches to the
// processes, as a session does, and needs the right to trace them. Like Attach it waits for other commands.
func Recover(ctx context.Context, pids []int) (recovered []int, err error) {
	var errs []error
	for _, pid := range pids {
		turn, err := area.TakeTurn(ctx, pid, turnPatience)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		some, err := area.Recover(ctx, []int{pid})
		turn.End()
		recovered, errs = append(recovered, some...), append(errs, err)
	}
	return recovered, errors.Join(errs...)
}

// Checked is what Check found out about a definition.
type Checked = assess.Checked

// Check reports whether a definition can be armed, as far as files tell: its places exist, they
// start instructions that can run out of line, and its arguments can be fetched there. space
// may be a file's or a process's. Check touches neither. Memory that differs from its file is
// only noticed when the probe is armed.
//
// Errors are *DefError, with the cause: an error of Space.Resolve, *BoundaryError,
// *RefusedError or *fetch.SyntaxError.
func Check(space *symbols.Space, d *fetch.Def) (*Checked, error) { return assess.Check(space, d) }

// Inspect lists the instructions of the function at a place. For each it says how it would be
// probed if it were the only one, or why it can't be. A pattern lists every function that it
// matches. space may be a file's or a process's. Inspect touches neither. For a file it assumes
// that the addresses around it are free.
//
// Inspect calls each for one function after the other, in order of the places, on the caller's
// goroutine. each may keep the listing. If each returns an error, Inspect stops and returns it.
// Other errors are those of Space.Resolve, and *BoundaryError for an offset inside an
// instruction.
func Inspect(space *symbols.Space, p symbols.Place, each func(*Listing) error) error {
	return assess.Inspect(space, p, each)
}
