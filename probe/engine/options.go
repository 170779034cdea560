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

// Options configure a session. The zero value is kprobe's default.
type Options struct {
	// NoOptimize makes every probe a breakpoint.
	NoOptimize bool
	// MaxActive is the number of instances of return probes whose definition gives none. 0
	// leaves it to Active.
	MaxActive int
	// Active is that number if MaxActive is 0. 0 is 1024, or fewer for those of many return
	// probes that can't share, but at least 64. Unlike MaxActive, it lets many return probes
	// note their calls in one common table, of which each may use all.
	Active int
	// MaxText is how many bytes of a string in the program's memory are shown. No more are
	// recorded either, unless a filter compares the string. 0 is fetch.MaxString.
	MaxText int
	// Follow also probes the children that the target forks.
	Follow bool
	// Pending says whether a definition waits for its library if the process has not mapped
	// it, and is armed when it does. nil, or a result of false, makes that an error. Any
	// goroutine may call it.
	Pending func(d *fetch.Def) bool
	// Expect are the definitions that will be added first. What files tell about them is
	// looked up before any thread of a process is attached to. It is no error here if
	// something isn't found; adding the definition will fail then.
	Expect []*fetch.Def
	// CountOnly evaluates filters and counts hits, and passes none to the sink (kprobe
	// profile).
	CountOnly bool
	// Bin, if not nil, decides for a program of an event whether its hits are counted by a
	// number, and how, instead of leaving a record for each. Only jumps do so, as many as
	// there is room for. All other hits, and those whose number can't be read or has no
	// bin, go to the sink. Session.Bins returns the counts. Bin must not block.
	Bin func(ev *results.Event, prog *fetch.Program) *results.Bin
	// RingSize is the size of each CPU's ring in bytes: a power of two from
	// ring.MinRingSize to ring.MaxRingSize. 0 is 2 MiB, or 32 MiB in a session that records
	// stacks from its start.
	RingSize int
	// Log gets the session's messages: what the user should know at slog.LevelWarn, what
	// the session does at slog.LevelInfo. Messages are whole sentences, without attributes.
	// nil drops all. A goroutine of its own calls it, one message after another: a slow log
	// delays nobody, and loses messages.
	Log *slog.Logger
	// Touched is called with every process that the session attaches to, before its memory
	// is changed; nil is none. It must not block.
	Touched func(pid int)
	// Armed is called when all probes of a started command are armed, except those that
	// wait for a library: before the program's own first instruction, with the program
	// stopped. Hits of its loader and of constructors may come earlier. Armed must not
	// block, nor call the session; nil is none. It isn't called for processes that are
	// attached to: they are armed when Session.Arm returns.
	Armed func()
	// Signaled is called when a process of the session is sent one of the signals that end
	// a trace, before it takes the signal; nil is none. It must not block.
	Signaled func(pid int, sig syscall.Signal)
	// Progress is called while places are found and jumps are planned, at most ten times a
	// second, with the present step, and n of how many pieces of it are done. It must not
	// block, nor call the session; nil is none.
	Progress func(step string, n, of int)
	// Inject changes the calls of functions that definitions name, instead of only
	// recording them; nil changes none. If calls are delayed, or counted over several
	// processes, all probes are breakpoints. It can't be combined with Limit, Expire or
	// Triggers.
	Inject *Injection
	// Limit is how many hits of an event are recorded in each second, in each address
	// space; 0 is all. Further hits are dropped where they occur, and counted.
	Limit uint32
	// Expire is the time after which armed probes switch themselves off, whether this
	// process lives or not; 0 is never.
	Expire time.Duration
	// Triggers are what is done at hits besides recording them.
	Triggers []*fetch.Trigger
	// Detach prepares the session for Session.Detach: full rings overwrite their oldest
	// records, no definition waits for a library, and Run passes no hits.
	Detach bool
	// LetGo makes the session let go of its processes while nothing changes and nothing
	// needs a tracer. Log says of which it lets go, and what keeps the others. Signals,
	// births and system calls then cost them as much as without kprobe, and others may
	// trace them. Hits that read memory cost more.
	//
	// It applies to processes that are attached to or started, without Wait, Inject and
	// NoOptimize; in other sessions it has no effect. With Follow, forked children record
	// from their first instruction, and are not traced until probes change. A program that
	// a child executes is probed once that is seen, some 20 ms after it began.
	//
	// A process that another tracer holds can't be changed (*tracee.TracedError) until that
	// tracer lets go of it. Close waits for that as long as its context lasts.
	LetGo bool
	// Keep names a file for the memory file of a session that leaves its probes alone, in
	// one process. With "" there is no such file, and the memory file goes with the
	// process.
	Keep string
	// Wait makes the session take processes that begin while it runs; nil is none. Run then
	// doesn't end when no process is left.
	Wait *Wait
	// Version is that of the program that uses this package. It goes into the book of
	// probes that are left alone.
	Version string
	// Files are shared with other sessions, and say where debug files are found. nil is a
	// Cache of the session's own.
	Files *symbols.Cache
}

// Wait selects processes that begin while a session runs, and that the session takes.
type Wait struct {
	// Files are the files whose execution is wanted. If the rights allow it, such processes
	// are armed before they execute an instruction of the program.
	Files []string
	// Hold is how long a process may be kept in execve; 0 is starts.HoldTime.
	Hold time.Duration
	// Names says that processes of other files may be wanted, too.
	Names bool
	// Is reports whether a process runs a wanted program. Any goroutine calls it.
	Is func(pid int) bool
	// Begun is called with the means by which starts are noticed, as soon as these are
	// known; nil is none.
	Begun func(files, others starts.Means)
}

// Follows reports whether children with memory of their own may be probed.
func (o *Options) Follows() bool { return o.Follow || o.Wait != nil }

// WhyStays returns why processes are never let go of; "" if they are.
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
