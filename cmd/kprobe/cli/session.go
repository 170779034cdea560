package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/probe"
	"kprobe/symbols"
)

// closeTime bounds how long probes may take to come out.
const closeTime = 30 * time.Second

// sessionOptions are what trace and profile have in common: definitions, a
// target, and how long to go on.
type sessionOptions struct {
	defs       sources
	pids       pidList
	command    []string
	outputFile string
	form       output.Form
	events     uint64
	duration   time.Duration
	interval   time.Duration // 0: where it wasn't given
	follow     bool
	noOptimize bool
	pending    bool
	maxActive  int
	verbose    bool
	quiet      bool
	servers

	// adapt, if set, looks at the definitions that were chosen, and may put
	// others in their place.
	adapt func(defs []*fetch.Def) error
	// waits are the kept definitions: they wait for their libraries.
	waits map[*fetch.Def]bool

	// each asks for the counters of places: watch gets them, and atEnd are those
	// after the last probe is out.
	each  bool
	atEnd []probe.Stats

	// watch is called when the probes are in, with a function that gives their
	// counters; the function that it returns when they are about to come out.
	// nil is none.
	watch func(stats func() []probe.Stats) (stop func())
}

func (o *sessionOptions) register(c *cobra.Command, d *Deps) {
	f := c.Flags()
	f.VarP(&o.pids, "pid", "p", "probe this running process (repeat, or a list with commas)")
	f.StringVarP(&o.defs.exec, "exec", "x", "", "look places without a module up in this `FILE`")
	f.StringArrayVarP(&o.defs.files, "file", "F", nil, "read definitions from this `FILE`, - is standard input")
	f.StringVarP(&o.outputFile, "output", "o", "", "write to this `FILE`, not to standard output")
	addFormat(f, &o.form)
	f.DurationVarP(&o.duration, "duration", "t", 0, "end after this `TIME`, such as 10s")
	f.BoolVarP(&o.follow, "follow", "f", false, "probe the children of the target too")
	f.BoolVar(&o.noOptimize, "no-optimize", false, "use breakpoints only")
	f.BoolVar(&o.pending, "pending", false, "have definitions of libraries that are not mapped wait until the target loads them")
	f.IntVar(&o.maxActive, "maxactive", 0, "`N` calls that a return probe follows at a time, where the definition names no number")
	o.servers.register(f)
	f.BoolVarP(&o.verbose, "verbose", "v", false, "say on standard error what is done")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no summary at the end")
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
func (o *sessionOptions) arguments(c *cobra.Command, args []string) error {
	o.defs.args = args
	dash := c.ArgsLenAtDash()
	if dash >= 0 {
		o.defs.args, o.command = args[:dash], args[dash:]
	}
	switch {
	case dash >= 0 && len(o.command) == 0:
		return misuse("name the command behind --")
	case len(o.command) > 0 && len(o.pids) > 0:
		return misuse("-p PID and -- CMD exclude each other")
	case len(o.command) == 0 && len(o.pids) == 0:
		return misuse("name a target: -p PID for a process that runs, or -- CMD ARG… for one to start")
	case o.maxActive < 0 || o.maxActive > fetch.MaxActive:
		return misuse("--maxactive %d: 1 to %d", o.maxActive, fetch.MaxActive)
	case o.duration < 0:
		return misuse("-t %v: a time before now", o.duration)
	case o.verbose && o.quiet:
		return misuse("-v and -q exclude each other")
	}
	return nil
}

func (o *sessionOptions) engine(d *Deps, m *messages) probe.Options {
	p := probe.Options{
		NoOptimize: o.noOptimize,
		MaxActive:  o.maxActive,
		Follow:     o.follow,
		Warnf:      m.warn,
		Touched:    d.Link.Touched,
		Pending:    func(def *fetch.Def) bool { return o.pending || o.waits[def] },
		Files:      o.cache(d),
	}
	if o.verbose {
		p.Logf = m.say
	}
	return p
}

// run attaches to the target, or starts it, arms the definitions, lets sink
// have the hits and takes everything out again. The summary's counters are
// those after the last probe is out.
func (o *sessionOptions) run(ctx context.Context, d *Deps, m *messages, p probe.Options, out *os.File, sink probe.Sink) (sum probe.Summary, err error) {
	defs, release, err := o.choose(ctx, d, m)
	defer release()
	if errors.Is(err, errNoDefinitions) {
		return sum, err
	}
	if err != nil {
		return sum, fail(err)
	}
	if o.adapt != nil {
		if err := o.adapt(defs); err != nil {
			return sum, err
		}
	}
	run, signals, stop := watchSignals(ctx, d.Link)
	defer stop()
	o.fetch(run, d, m, defs)
	s, err := o.begin(run, d, p, signals)
	if err != nil {
		return sum, fail(err)
	}
	defer func() {
		signals.ended()
		if len(o.command) > 0 && !o.pending && errors.Is(err, symbols.ErrNoSymbol) {
			err = &startedError{err, filepath.Base(o.command[0])}
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if cerr := s.Close(end); cerr != nil {
			err = both(err, fail(fmt.Errorf("take the probes out: %w: %w", errLeftBehind, cerr)))
		}
		sum.Stats = s.Stats()
		if o.each {
			o.atEnd = s.PlaceStats()
		}
	}()
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	if err := s.Arm(run, defs); err != nil {
		if run.Err() != nil {
			err = errors.New("interrupted before the probes were in")
		}
		return sum, fail(err)
	}
	defer giveBack()()
	if o.duration > 0 {
		timed, cancel := context.WithTimeout(run, o.duration)
		defer cancel()
		run = timed
	}
	if o.watch != nil {
		stats := s.Stats
		if o.each {
			stats = s.PlaceStats
		}
		defer o.watch(stats)()
	}
	run, closed := watchReader(run, out)
	sum, err = s.Run(run, sink)
	if errors.Is(err, output.ErrClosed) || closed() {
		err = nil // the reader has seen enough
	}
	return sum, fail(err)
}

// garbage is how much memory that is used no more a trace may have, in percent of
// what it uses. It makes little while it goes on, and looking things up keeps most.
const garbage = 30

// settled is how long after arming nothing is looked up any more, usually.
const settled = 500 * time.Millisecond

// giveBack returns memory to the system that looking things up took and a trace
// doesn't, once it is settled, until stop is called.
func giveBack() (stop func()) {
	t := time.AfterFunc(settled, debug.FreeOSMemory)
	return func() { t.Stop() }
}

func (o *sessionOptions) begin(ctx context.Context, d *Deps, p probe.Options, signals *interrupts) (Session, error) {
	if len(o.command) == 0 {
		for _, pid := range o.pids {
			if d.Proc.Own(pid) {
				return nil, fmt.Errorf("process %d is kprobe itself, which would wait for itself", pid)
			}
		}
		return d.Engine.Attach(ctx, o.pids, p)
	}
	path, err := exec.LookPath(o.command[0])
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.command[0], errors.Unwrap(err))
	}
	s, err := d.Engine.Start(ctx, probe.Command{
		Path: path, Args: o.command,
		Stdin: d.Stdio[0], Stdout: d.Stdio[1], Stderr: d.Stdio[2],
	}, p)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.command[0], err)
	}
	if pids := s.Pids(); len(pids) == 1 {
		signals.started(pids[0])
	}
	return s, nil
}

// watchReader cancels the context when nobody reads the file any more, hits or
// no hits: the reader of a pipe that was closed shows as POLLERR (poll(2)).
// closed reports whether that was so.
func watchReader(ctx context.Context, f *os.File) (watched context.Context, closed func() bool) {
	if f == nil {
		return ctx, func() bool { return false }
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return ctx, func() bool { return false } // the next write will tell
	}
	// A descriptor of its own, as the file may be closed meanwhile, and a pipe
	// whose end ends the watch: no wake-up is spent on it.
	own, over := -1, [2]int{}
	cerr := conn.Control(func(fd uintptr) { own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if cerr != nil || err != nil {
		return ctx, func() bool { return false }
	}
	if err := unix.Pipe2(over[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(own)
		return ctx, func() bool { return false }
	}
	watched, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(watched, func() { _ = unix.Close(over[1]) })
	go func() {
		defer func() { _, _ = unix.Close(own), unix.Close(over[0]) }()
		fds := []unix.PollFd{{Fd: int32(own)}, {Fd: int32(over[0])}}
		n, err := unix.Poll(fds, -1)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(fds, -1)
		}
		if n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			cancel(output.ErrClosed)
		} // else it is over, or can't be watched: the next write will tell
	}()
	return watched, func() bool { return errors.Is(context.Cause(watched), output.ErrClosed) }
}

// open gives the file to write to: that of -o, or standard output; file is nil
// where it is not known which one that is.
func (o *sessionOptions) open(d *Deps) (w *output.Writer, file *os.File, done func() error, err error) {
	if o.outputFile == "" || o.outputFile == "-" {
		file, _ = d.Out.(*os.File)
		w = output.NewWriter(d.Out)
		return w, file, w.Close, nil
	}
	file, err = os.Create(o.outputFile)
	if err != nil {
		return nil, nil, nil, fail(fmt.Errorf("output: %w", err))
	}
	w = output.NewWriter(file)
	return w, file, func() error { return errors.Join(w.Close(), file.Close()) }, nil
}
