package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/output"
	"kprobe/probe"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// errNotIn says that a signal came before the probes were in.
var errNotIn = errors.New("interrupted before the probes were in")

// sessionOptions are what trace and profile have in common: definitions, a
// target, and how long to go on.
type sessionOptions struct {
	page       countsPage // of commands that count
	defs       sources
	pids       pidList
	name       string                 // a pattern: of processes, instead of pids
	named      bool                   // pids were found by name, or by the file of -x
	wait       bool                   // those that begin later are taken, too
	is         func(procfs.Task) bool // which processes are, where they are named so
	command    []string
	outputFile string
	form       output.Form
	events     uint64
	rotate     rotation
	inject     *probe.Injection // what is done to calls; nil: they are traced
	does       string           // what is done to them, for the person
	duration   time.Duration
	interval   time.Duration // 0: where it wasn't given
	follow     bool
	kill       bool // end the command if it outlives the trace
	started    int  // its pid, once it runs
	noOptimize bool
	letGo      bool // of the target, while nothing changes
	pending    bool
	maxActive  int
	ring       int // bytes; 0: where it wasn't given
	strSize    int
	verbose    bool
	quiet      bool
	servers
	controlOptions

	// adapt, if set, looks at the definitions that were chosen, and gives those to
	// be armed.
	adapt func(defs []*fetch.Def) ([]*fetch.Def, error)
	// waits are the kept definitions: they wait for their libraries.
	waits map[*fetch.Def]bool

	// each asks for the counters of places: watch gets them, and atEnd are those
	// after the last probe is out.
	each    bool
	metrics string // address or file of --metrics
	atEnd   []probe.Stats
	// places gives the counters of places while the probes are in, processes those of
	// processes.
	places    func() []probe.Stats
	processes func() []probe.ProcessStats
	// disablePlaces switches the probes at places off, meanwhile.
	disablePlaces func(pick func(place, module string) bool) int
	// bins are what processes have counted by a number, while the probes are in and
	// at the end.
	bins      func() []results.Bins
	binsAtEnd []results.Bins

	// begun is when the command began; armed, if set, is told when the probes
	// are in, before any hit is given to the sink.
	begun time.Time
	armed func(output.Armed) error
	// expired says that the trace ended because its probes had switched themselves off.
	expired bool
	// over, if set, gets the time at which the trace is told to end.
	over *endTime

	// watch is called when the probes are in, with a function that gives their
	// counters; the function that it returns when they are about to come out.
	// nil is none.
	watch func(stats func() []probe.Stats) (stop func())
}

func (o *sessionOptions) register(c *cobra.Command, d *Deps) {
	f := c.Flags()
	f.VarP(&o.pids, "pid", "p", "probe this running process (repeat, or give a comma list)")
	f.StringVarP(&o.defs.exec, "exec", "x", "", "resolve places without a module in `FILE`; without a target, probe every process that runs FILE")
	f.StringVar(&o.name, "name", "", "probe every process whose name matches `GLOB`")
	f.BoolVar(&o.wait, "wait", false, "with -x or --name: also probe processes that start later")
	f.StringArrayVarP(&o.defs.files, "file", "F", nil, "read definitions from `FILE`; - is standard input")
	f.StringVarP(&o.outputFile, "output", "o", "", "write to `FILE` instead of standard output")
	addFormat(f, &o.form)
	f.DurationVarP(&o.duration, "duration", "t", 0, "end `TIME` after the probes are in, such as 10s")
	f.BoolVarP(&o.follow, "follow", "f", false, "also probe the children that the target forks")
	f.BoolVar(&o.kill, "kill-on-exit", false, "send CMD a SIGTERM if it still runs when the trace ends")
	f.BoolVar(&o.noOptimize, "no-optimize", false, "use breakpoints only")
	f.BoolVar(&o.letGo, "let-go", false, "don't trace the target while nothing changes, so that gdb or strace can")
	f.BoolVar(&o.pending, "pending", false, "let definitions wait for libraries that are not loaded yet")
	f.Var((*sizeValue)(&o.ring), "ring", "`SIZE` of each CPU's buffer, 64K to 1G, such as 16M; rounded up to a power of two")
	f.IntVar(&o.maxActive, "maxactive", 0, "follow up to `N` calls at a time with a return probe whose definition gives no number (default 1024)")
	o.servers.register(f)
	f.BoolVarP(&o.verbose, "verbose", "v", false, "report progress on standard error; print whole signatures in trace lines")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no summary, and no line when the probes are in")
	c.Flags().SortFlags = false
	completeTarget(c, d)
}

// addInterval adds the flag of commands that show counts while they count.
func (o *sessionOptions) addInterval(c *cobra.Command, usage string) {
	c.Flags().DurationVar(&o.interval, "interval", 0, usage)
}

// checkInterval refuses an interval that was given and is too short.
func (o *sessionOptions) checkInterval(c *cobra.Command) error {
	if c.Flags().Changed("interval") && o.interval < minInterval {
		return misuse("--interval %v: at least %v", o.interval, minInterval)
	}
	return nil
}

// minInterval is the shortest time between two pictures of the counters: a
// screen shows no more, and reading them is not free.
const minInterval = 10 * time.Millisecond

// arguments splits the words of the command line into definitions and, behind
// --, the command, and refuses what makes no sense together.
func (o *sessionOptions) arguments(c *cobra.Command, d *Deps, args []string) error {
	o.defs.args = args
	dash := c.ArgsLenAtDash()
	if dash >= 0 {
		o.defs.args, o.command = args[:dash], args[dash:]
	}
	switch {
	case dash >= 0 && len(o.command) == 0:
		return misuse("name the command behind --")
	case len(o.command) > 0 && len(o.pids) > 0:
		return misuse("-p PID and -- CMD cannot be used together")
	case o.name != "" && len(o.pids)+len(o.command) > 0:
		return misuse("--name takes all processes of a name: leave -p PID and -- CMD out")
	case o.wait && (len(o.pids)+len(o.command) > 0 || o.name == "" && o.defs.exec == ""):
		return misuse("--wait goes with -x FILE or --name GLOB, and without -p PID and -- CMD")
	case len(o.command) == 0 && len(o.pids) == 0 && o.name == "" && o.defs.exec == "":
		return misuse("name a target: -p PID for a process that runs, or -- CMD ARG… for one to start")
	case c.Flags().Changed("maxactive") && o.maxActive == 0, o.maxActive < 0, o.maxActive > fetch.MaxActive:
		return misuse("--maxactive %d: give a number from 1 to %d", o.maxActive, fetch.MaxActive)
	case c.Flags().Changed("duration") && o.duration <= 0:
		return misuse("-t %v: give a time above 0; without -t, the trace goes on until the target ends", o.duration)
	case c.Flags().Changed("events") && o.events == 0:
		return misuse("-n 0: give a number above 0; without -n, the trace goes on until the target ends")
	case o.kill && len(o.command) == 0:
		return misuse("--kill-on-exit ends the command behind --; a process that was running before runs on")
	case o.verbose && o.quiet:
		return misuse("-v and -q cannot be used together")
	}
	if err := o.checkControl(c); err != nil {
		return err
	}
	return o.findTargets(d)
}

func (o *sessionOptions) engine(d *Deps, m *messages) probe.Options {
	p := probe.Options{
		NoOptimize: o.noOptimize,
		MaxActive:  o.maxActive,
		RingSize:   o.ring,
		MaxText:    o.strSize,
		Version:    Version,
		Follow:     o.follow,
		LetGo:      o.letGo,
		Log:        slog.New(engineLog{m, o.verbose}),
		Touched:    d.Link.Touched,
		Inject:     o.inject,
		Pending:    func(def *fetch.Def) bool { return o.pending || o.waits[def] },
		Files:      o.cache(d),
	}
	o.control(&p)
	o.waitFor(d, m, &p)
	return p
}

// run attaches to the target, or starts it, arms the definitions, lets sink
// have the hits and takes everything out again. The summary's counters are
// those after the last probe is out.
func (o *sessionOptions) run(ctx context.Context, d *Deps, m *messages, p probe.Options, out *os.File, sink probe.Sink) (sum probe.Summary, err error) {
	o.begun = time.Now()
	busy := m.busy(d.Watched && !o.quiet, "looking up places")
	defer busy.stop()
	p.Progress = busy.progress()
	defs, release, err := o.choose(ctx, d, m)
	defer release()
	if errors.Is(err, errNoDefinitions) {
		return sum, err
	}
	if err != nil {
		return sum, fail(err)
	}
	if o.inject == nil {
		if err := notInject(defs); err != nil {
			return sum, err
		}
	}
	if o.adapt != nil {
		if defs, err = o.adapt(defs); err != nil {
			return sum, err
		}
	}
	if o.ring == 0 && slices.ContainsFunc(defs, func(def *fetch.Def) bool { return def.Stack > 0 }) {
		p.RingSize = 0 // the engine's, for stacks
	}
	if err := probe.CheckTriggers(o.triggers, defs); err != nil {
		return sum, fail(err)
	}
	run, signals, stop := watchSignals(ctx, d.Link)
	defer stop()
	o.fetch(run, d, m, defs)
	o.warnOthers(d, m)
	in := make(chan struct{})
	p.Armed = sync.OnceFunc(func() { close(in) })
	p.Signaled = signals.reached
	defer context.AfterFunc(run, d.Link.Ending)()
	p.Expect = defs
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	s, err := o.begin(run, d, m, p, signals)
	if err != nil {
		if run.Err() != nil {
			err = errNotIn
		}
		return sum, fail(err)
	}
	defer func() {
		signals.ended()
		if len(o.command) > 0 && !o.pending && errors.Is(err, symbols.ErrNoSymbol) {
			err = &startedError{err, filepath.Base(o.command[0])}
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), probe.LeaveTime(s.Stats()))
		defer cancel()
		if cerr := s.Close(end); cerr != nil {
			err = both(err, fail(fmt.Errorf("take the probes out: %w: %w", errLeftBehind, cerr)))
		}
		sum.Stats = s.Stats()
		o.binsAtEnd = s.Bins()
		o.endInterrupted(s, &sum, signals.signal())
		sum.Alive = o.endCommand(s, m, sum.Alive)
		if o.each || o.metrics != "" || output.Sum(sum.Stats).Lost > 0 {
			o.atEnd = s.PlaceStats()
		}
	}()
	if err := s.Arm(run, defs); err != nil {
		if run.Err() != nil {
			err = errNotIn
		} else if pids := s.Pids(); len(o.command) == 0 && len(o.pids) == 1 && len(pids) == 0 {
			err = fmt.Errorf("process %d ended before the probes were in", o.pids[0])
		}
		return sum, fail(err)
	}
	busy.stop()
	told, err := o.sayArmed(m, in, s.Stats)
	if err != nil {
		return sum, fail(err)
	}
	defer told()
	defer giveBack()()
	ranOut := func() bool { return false }
	if o.lasts() > 0 {
		timed, cancel := o.timed(run, in)
		defer cancel()
		asked := run
		ranOut = func() bool { return timed.Err() != nil && asked.Err() == nil }
		run = timed
	}
	if o.watch != nil {
		o.places, o.processes, o.bins, o.disablePlaces = s.PlaceStats, s.ProcessStats, s.Bins, s.DisablePlaces
		stats := s.Stats
		if o.each {
			stats = s.PlaceStats
		}
		defer o.watch(stats)()
	}
	run, closed := watchReader(run, out)
	if o.over != nil {
		defer context.AfterFunc(run, o.over.note)()
	}
	sum, err = s.Run(run, sink)
	o.expired = o.expires() && ranOut()
	if errors.Is(err, output.ErrClosed) || closed() {
		err = nil // the reader has seen enough
	}
	return sum, fail(err)
}

// garbage is how much memory that is used no more a trace may have, in percent of
// what it uses. It makes little while it goes on, and looking things up keeps most.
const garbage = 15

// settled is how long after arming nothing is looked up any more, usually.
const settled = 500 * time.Millisecond

// giveBack returns memory to the system that looking things up took and a trace
// doesn't: at once, before a flood of hits takes more, and once it is settled, until stop is
// called.
func giveBack() (stop func()) {
	go debug.FreeOSMemory()
	t := time.AfterFunc(settled, debug.FreeOSMemory)
	return func() { t.Stop() }
}

func (o *sessionOptions) begin(ctx context.Context, d *Deps, m *messages, p probe.Options, signals *interrupts) (Session, error) {
	group, ignored := d.Link.Apart()
	if len(o.command) == 0 {
		for _, pid := range o.pids {
			if d.Proc.Own(pid) {
				return nil, fmt.Errorf("process %d is kprobe itself, which would wait for itself", pid)
			}
		}
		return o.attach(ctx, d, m, p)
	}
	path, err := exec.LookPath(o.command[0])
	if err != nil {
		return nil, startError(o.command[0], err)
	}
	s, err := d.Engine.Start(ctx, probe.Command{
		Path: path, Args: o.command,
		Stdin: d.Stdio[0], Stdout: d.Stdio[1], Stderr: d.Stdio[2],
		Group: group, Ignored: ignored,
	}, p)
	if err != nil {
		if strings.HasPrefix(err.Error(), "start ") {
			return nil, err // it names the program
		}
		return nil, fmt.Errorf("start %s: %w", o.command[0], err)
	}
	if pids := s.Pids(); len(pids) == 1 {
		signals.started(pids[0])
		o.started = pids[0]
	}
	return s, nil
}

// startError says why a command can't be started: the reason alone, as its name
// stands before it.
func startError(name string, err error) error {
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.Unwrap(err) != nil:
		err = errors.Unwrap(err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("start %s: %w; chmod +x makes a file executable", name, err)
	}
	return fmt.Errorf("start %s: %w", name, err)
}
