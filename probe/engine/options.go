package engine

import (
	"log/slog"
	"syscall"
	"time"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/probe/starts"
	"kprobe/symbols"
)

// Options say how a session probes. The zero value is kprobe's default.
type Options struct {
	// NoOptimize keeps every probe a breakpoint.
	NoOptimize bool
	// MaxActive is the number of instances of return probes whose definition
	// names none; 0 leaves it to Active.
	MaxActive int
	// Active is that number where MaxActive is 0; 0 is the kernel's default, max(10,
	// 2*CPUs). It keeps no return probe from noting its calls in a table that many share,
	// of which each may have all.
	Active int
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
	// to the sink. The session's Bins gives what was counted. It must not block.
	Bin func(ev *results.Event, prog *fetch.Program) *results.Bin
	// RingSize is how large each CPU's ring is, in bytes: a power of two from
	// ring.MinRingSize to ring.MaxRingSize. 0 is 2 MiB, and 32 MiB in a session that
	// records stacks from its start.
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
	// called for processes that are attached to: there the session's Arm has done it.
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
	// Triggers.
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
	// that another tracer holds can't be changed (*tracee.TracedError) until that one
	// lets go of it; Close waits for it as long as its context lasts.
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

// Wait says which processes a session takes that begin while it runs.
type Wait struct {
	// Files are executed by processes that are wanted. Where the rights allow, these
	// are armed before they execute an instruction of the program.
	Files []string
	// Hold is how long a process may be kept in execve; 0 is starts.HoldTime.
	Hold time.Duration
	// Names says that processes of other files may be wanted, too.
	Names bool
	// Is reports whether a process runs what is wanted. Any goroutine calls it.
	Is func(pid int) bool
	// Begun is told how processes are seen to begin, as soon as they are; nil is none.
	Begun func(files, others starts.Means)
}

// Follows reports whether children with memory of their own may be probed.
func (o *Options) Follows() bool { return o.Follow || o.Wait != nil }

// WhyStays says why processes are never let go of; "": they are.
func (o *Options) WhyStays() string {
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
