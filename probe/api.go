package probe

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"time"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/assess"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
	"kprobe/probe/results"
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
	// MaxText is how many bytes of a text that the program's memory holds are
	// shown, and recorded where no filter compares them; 0 is fetch.MaxString.
	MaxText int
	// Follow probes the children too that the target forks.
	Follow bool
	// Pending says which definitions wait for their library where the process
	// has not mapped it, and are armed when it does; nil is none: they are
	// errors. It may be called by any goroutine.
	Pending func(d *fetch.Def) bool
	// Expect are the definitions that will be added first: what files tell of them
	// is found out before a thread of a process is attached to. What can't be found
	// is no error: adding them is.
	Expect []*fetch.Def
	// CountOnly evaluates filters and counts hits, and gives none to the
	// sink (kprobe profile).
	CountOnly bool
	// Bin, if any, says for a program of an event whether its hits are to be counted by a
	// number, and how, instead of a record for each. Jumps do so, as many as there is
	// room for; all other hits, and those whose number can't be read or has no bin, go
	// to the sink. Bins gives what was counted. It must not block.
	Bin func(ev *Event, prog *fetch.Program) *results.Bin
	// RingSize is how large each CPU's ring is, in bytes: a power of two from
	// MinRing to MaxRing. 0 is 2 MiB, and 32 MiB in a session that records stacks
	// from its start.
	RingSize int
	// Log gets what the session says: what the user should know at slog.LevelWarn, what
	// the session does at slog.LevelInfo. Messages are whole sentences, without
	// attributes. nil drops all. It is called by a goroutine of its own, one message
	// after the other: a log that takes its time holds nobody up, and loses messages.
	Log *slog.Logger
	// Touched is told every process that the session attaches to, before its
	// memory is changed. nil is none. It must not block.
	Touched func(pid int)
	// Armed is called when every probe of a started command is in that does not
	// wait for a library to come: before the program's own first instruction,
	// with the program stopped. Hits of its loader and of constructors may come
	// before. It must not block, nor call the session; nil is none. It is not
	// called for processes that are attached to: there Arm has done it.
	Armed func()
	// Signaled is told which signals of those that end a trace come to a process
	// of the session, before it takes them. nil is none. It must not block.
	Signaled func(pid int, sig syscall.Signal)
	// Progress is told while places are found and jumps are planned: what is being
	// done, and n of how many pieces of it, ten times a second at most. It must not
	// block, nor call the session; nil is none.
	Progress func(step string, n, of int)
	// Inject changes the calls of functions that definitions name, instead of only
	// recording them; nil changes none. Where calls wait, and where those of several processes
	// are counted together, all probes are breakpoints. It doesn't go with Limit, Expire or
	// Triggers: ErrInjectControls.
	Inject *Injection
	// Limit is how many hits of an event are recorded in each second, in each address
	// space; 0 is all. More are dropped where they are hit, and counted.
	Limit uint32
	// Expire is how long after they are in the probes switch themselves off, whether
	// this process lives or not; 0 is never.
	Expire time.Duration
	// Triggers are what is done at hits besides recording them.
	Triggers []*fetch.Trigger
	// Detach prepares the session for Detach: its rings are overwritten where they are
	// full, no definition waits for a library, and Run gives no hits.
	Detach bool
	// LetGo has the session let go of its processes while nothing changes and nothing
	// needs a tracer; Log says of which it does, and what keeps the others. Signals, births
	// and system calls cost them what they cost without kprobe then, others may trace them,
	// and hits that read memory cost more. It is for processes that are attached to or
	// started, without Wait, Inject and NoOptimize, and changes nothing elsewhere. With Follow
	// forked children record from their first instruction, untraced until probes change, and
	// what a child executes is probed once that is seen, some 20 ms after it began. A process
	// that another tracer holds can't be changed (*TracedError) until that one lets go of it;
	// Close waits for it as long as its context lasts.
	LetGo bool
	// Keep is the name of a file for the memory file of a session that leaves its probes
	// alone, of one process; "" is none, and it goes with the process.
	Keep string
	// Wait has the session take processes that begin while it runs; nil is none. Run
	// doesn't end when no process is left.
	Wait *Wait
	// Version is that of the program that uses the package, for the book of probes that
	// are left alone.
	Version string
	// Files are shared with other sessions, and say where debug files are
	// found; nil is a Cache of the session's own.
	Files *symbols.Cache
}

// config is what the engine is told of the options.
func (o *Options) config() engine.Config {
	return engine.Config{
		NoOptimize: o.NoOptimize, MaxActive: o.MaxActive, MaxText: o.MaxText, Follows: o.Follow || o.Wait != nil,
		Pending: o.Pending, CountOnly: o.CountOnly, Bin: o.Bin, RingSize: o.RingSize, Log: o.Log, Touched: o.Touched,
		Armed: o.Armed, Signaled: o.Signaled, Progress: o.Progress, Limit: o.Limit, Expire: o.Expire,
		Detach: o.Detach, Keep: o.Keep, Version: o.Version,
	}
}

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

// whyStays says why processes are never let go of; "": they are.
func (o *Options) whyStays() string {
	switch {
	case !o.LetGo || o.Detach:
		return "it is to be so"
	case o.Wait != nil:
		return "processes to come are waited for"
	case o.Inject != nil:
		return "calls are changed"
	case o.NoOptimize:
		return "every probe is a breakpoint"
	}
	return ""
}
