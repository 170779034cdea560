package probe

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/order"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/sayer"
	"kprobe/probe/tracee"
	"kprobe/probe/triggers"
	"kprobe/symbols"
)

// config says how an engine probes: what Options says of it, by the same names.
type config struct {
	NoOptimize bool
	MaxActive  int
	MaxText    int
	// Follows says that children with memory of their own may be probed.
	Follows   bool
	Pending   func(d *fetch.Def) bool
	CountOnly bool
	Bin       func(ev *Event, prog *fetch.Program) *results.Bin
	RingSize  int
	Log       *slog.Logger
	Touched   func(pid int)
	Armed     func()
	Signaled  func(pid int, sig syscall.Signal)
	Progress  func(step string, n, of int)
	Limit     uint32
	Expire    time.Duration
	Detach    bool
	Keep      string
	Version   string
}

// owner is the session that an engine works for, as far as the engine asks it.
type owner interface {
	// handler answers the events of processes: Engine's handler, and which are probed.
	handler() tracee.Handler
	// handlersOf gives what is called at the hits of the probe that was registered
	// with a definition; nil for what came as a definition.
	handlersOf(d *fetch.Def) *handlers
	// hasHandlers reports whether a probe was registered whose handlers run with the
	// thread stopped.
	hasHandlers() bool
	// strike ends the registration of a definition's probe, if it has one.
	strike(d *fetch.Def)
	// mayAsk is the error of why requests in mailboxes of processes are refused.
	mayAsk() error
	// reply does what a request in a mailbox asks for, and gives the answer.
	reply(ctx context.Context, r *ring.Request) []byte
	// refuse gives the answer to a request that is refused.
	refuse(err error) []byte
}

// engine probes a session's processes: what is laid into them, their hits and where these
// go. What belongs to whom is said at the fields.
type engine struct {
	owner   owner
	opts    config
	tracer  *tracee.Tracer
	files   *symbols.Cache
	clock   clock
	golang  assess.Programs
	unwinds assess.Unwinders
	sayer   sayer.Sayer

	mu     sync.Mutex // guards events and defs
	events []*event
	byName map[string]*event
	gone   map[string]*event // removed ones that are still in the list, by name
	defs   []*defOf

	// cancel ends the run that is going on. It needs no lock: who holds sinkMu
	// may be waiting for the tracer's thread.
	cancel atomic.Pointer[context.CancelFunc]

	stacks    atomic.Bool // a definition records stacks
	sinkMu    sync.Mutex  // guards the sink's turn, and what follows
	sink      Sink
	sinkEnded bool  // it wants no more
	endErr    error // why: what it returned, or what broke the reading
	ended     bool

	alone atomic.Bool // the last process has ended, or was left
	// awayFrom are the processes that are let go of (unattended.go).
	awayFrom atomic.Pointer[[]letGoOf]
	// semaphored are the probes whose semaphores depend on whether they are on.
	semaphored atomic.Pointer[[]semaphored]
	// watching are the watchpoints, which have registers only while they are on.
	watching atomic.Pointer[[]watchState]

	// The rest belongs to the tracer thread.
	targets map[int]*target
	started int // pid of the command that was started, 0: none
	hitState
	inject   *injection // nil: calls are left as they are
	triggers triggers.Set
	counter  ring.SystemClock
	busy     atomic.Uint64 // a time stamp no later than that of a hit that is being recorded; 0 is none
	feeds    []*feed
	order    order.Order[*placed] // of their hits
	retiring sync.WaitGroup       // feeds whose targets are over
	stopping bool                 // the run is over: hits are nobody's
	fatal    error                // ends Run: a definition of a started command that can't be armed
	run      context.Context
	running  bool
	closed   bool
	letsGo   bool // of processes while nothing changes
	answers  answers
	step     string    // that Progress was told of last
	stepAt   time.Time // and when
}

func newEngine(c config, tr *tracee.Tracer, files *symbols.Cache) *engine {
	return &engine{opts: c, tracer: tr, files: files, clock: newClock(), byName: map[string]*event{}, gone: map[string]*event{}, targets: map[int]*target{}, run: context.Background()}
}
