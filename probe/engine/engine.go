package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/feed"
	"kprobe/probe/ring"
	"kprobe/probe/sayer"
	"kprobe/probe/tracee"
	"kprobe/probe/triggers"
	"kprobe/symbols"
)

// Owner is what an engine asks the session that it works for.
type Owner interface {
	// Handler is the handler of the tracer's events. It calls the engine's Handler.
	Handler() tracee.Handler
	// HandlersOf returns the handlers of the probe that was registered with a definition; nil
	// if the definition came without a registration.
	HandlersOf(d *fetch.Def) *Handlers
	// HasHandlers reports whether any registered probe has handlers that run while the thread
	// is stopped.
	HasHandlers() bool
	// Strike ends the registration of a definition's probe, if it has one.
	Strike(d *fetch.Def)
	// MayAsk returns the error with which requests in the processes' mailboxes are refused; nil
	// if they are not.
	MayAsk() error
	// Reply carries out a request from a mailbox, and returns the answer.
	Reply(ctx context.Context, r *ring.Request) []byte
	// Refuse returns the answer to a refused request.
	Refuse(err error) []byte
}

// Engine probes a session's processes, and passes their hits to the sink. The fields say which
// thread may use them.
type Engine struct {
	Owner   Owner
	Opts    Options
	Tracer  *tracee.Tracer
	files   *symbols.Cache
	clock   clock
	golang  assess.Programs
	unwinds assess.Unwinders
	Sayer   sayer.Sayer
	Events  *EventList

	// Cancel ends the current run. It is atomic instead of guarded by a lock, because the
	// goroutine that calls the sink may be waiting for the tracer's thread.
	Cancel atomic.Pointer[context.CancelFunc]

	Stacks atomic.Bool // a definition records stacks
	// Out is where hits go.
	Out *feed.Outlet

	Alone atomic.Bool // the last process has ended, or was left
	// awayFrom are the processes that are let go of (unattended.go).
	awayFrom atomic.Pointer[[]letGoOf]
	// semaphored are the probes that have semaphores, which are raised only while they are on.
	semaphored atomic.Pointer[[]semaphored]
	// watching are the watchpoints, which have debug registers only while they are on.
	watching atomic.Pointer[[]watchState]

	// The rest belongs to the tracer's thread.
	Targets map[int]*Target
	Started int // pid of the command that was started, 0: none
	hitState
	Inject   *Injecting // how calls are changed; nil: they aren't
	Triggers triggers.Set
	counter  ring.SystemClock
	busy     atomic.Uint64 // while a hit is being recorded, a time stamp not later than the hit's; else 0
	// Lateness is how long hits wait for an older one that is being recorded, as in ring.Options; 0 is the default. Tests
	// change it. A change applies to processes whose first probes come later.
	Lateness time.Duration
	Feeds    []*Feed
	Retiring sync.WaitGroup  // feeds whose targets have ended
	Stopping bool            // the run is ending: no more hits are taken
	Fatal    error           // the error that Run ends with; nil: none yet
	Run      context.Context // of the current run
	Running  bool
	Closed   bool
	// flagsRead says that a probe of the session has read the status flags, or that another tracer may while the
	// probes of this session stay.
	flagsRead bool
	LetsGo    bool   // processes are let go of while nothing changes (Options.LetGo)
	Stays     string // the reason why LetsGo is false although Options.LetGo is set; else ""
	Answers   answers
	step      string    // the step that Progress was called with last
	stepAt    time.Time // when it was called
}

// New makes an engine without processes. The caller must set Owner, and tell the tracer which
// handler to call.
func New(o Options, tr *tracee.Tracer, files *symbols.Cache) *Engine {
	s := &Engine{Opts: o, Tracer: tr, files: files, clock: NewClock(), Targets: map[int]*Target{}, Run: context.Background(), flagsRead: o.Detach || o.LetGo}
	s.Events = newEventList(s.newEvent, func(d *fetch.Def) { s.Owner.Strike(d) })
	s.Out = feed.NewOutlet(s.endRun)
	return s
}
