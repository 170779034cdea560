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

// Owner is the session that an engine works for, as far as the engine asks it.
type Owner interface {
	// Handler answers the events of processes: Engine's handler, and which are probed.
	Handler() tracee.Handler
	// HandlersOf gives what is called at the hits of the probe that was registered
	// with a definition; nil for what came as a definition.
	HandlersOf(d *fetch.Def) *Handlers
	// HasHandlers reports whether a probe was registered whose handlers run with the
	// thread stopped.
	HasHandlers() bool
	// Strike ends the registration of a definition's probe, if it has one.
	Strike(d *fetch.Def)
	// MayAsk is the error of why requests in mailboxes of processes are refused.
	MayAsk() error
	// Reply does what a request in a mailbox asks for, and gives the answer.
	Reply(ctx context.Context, r *ring.Request) []byte
	// Refuse gives the answer to a request that is refused.
	Refuse(err error) []byte
}

// Engine probes a session's processes: what is laid into them, their hits and where these
// go. What belongs to whom is said at the fields.
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

	// cancel ends the run that is going on. It needs no lock: who is in the
	// sink's turn may be waiting for the tracer's thread.
	Cancel atomic.Pointer[context.CancelFunc]

	Stacks atomic.Bool // a definition records stacks
	// Out is where hits go.
	Out *feed.Outlet

	Alone atomic.Bool // the last process has ended, or was left
	// awayFrom are the processes that are let go of (unattended.go).
	awayFrom atomic.Pointer[[]letGoOf]
	// semaphored are the probes whose semaphores depend on whether they are on.
	semaphored atomic.Pointer[[]semaphored]
	// watching are the watchpoints, which have registers only while they are on.
	watching atomic.Pointer[[]watchState]

	// The rest belongs to the tracer thread.
	Targets map[int]*Target
	Started int // pid of the command that was started, 0: none
	hitState
	Inject   *Injecting // nil: calls are left as they are
	Triggers triggers.Set
	counter  ring.SystemClock
	busy     atomic.Uint64 // a time stamp no later than that of a hit that is being recorded; 0 is none
	Feeds    []*Feed
	Retiring sync.WaitGroup // feeds whose targets are over
	Stopping bool           // the run is over: hits are nobody's
	Fatal    error          // ends Run: a definition of a started command that can't be armed
	Run      context.Context
	Running  bool
	Closed   bool
	LetsGo   bool   // of processes while nothing changes
	Stays    string // why it doesn't, though it was to; "": it does, or it was not to
	Answers  answers
	step     string    // that Progress was told of last
	stepAt   time.Time // and when
}

// New makes an engine without processes. Its Owner is to be set, and the tracer to be told
// of who handles events.
func New(o Options, tr *tracee.Tracer, files *symbols.Cache) *Engine {
	s := &Engine{Opts: o, Tracer: tr, files: files, clock: NewClock(), Targets: map[int]*Target{}, Run: context.Background()}
	s.Events = newEventList(s.newEvent, func(d *fetch.Def) { s.Owner.Strike(d) })
	s.Out = feed.NewOutlet(s.endRun)
	return s
}
