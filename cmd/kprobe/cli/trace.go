package cli

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/probe"
)

type traceOptions struct {
	sessionOptions
	time  string
	hists []string
	lines bool
	// detach leaves the probes in the process.
	calls  bool
	detach bool
	keep   string // the file that has the hits then

	specs []*output.HistSpec // of hists
}

const traceLong = `Puts probes into a running process (-p PID) or into a command that it starts (--
CMD ARG…), and prints a line for each hit. The trace ends when the target ends,
when -n or -t is reached, or on ^C. kprobe then takes the probes out, and the
target runs on.

A DEF is a definition: a place and the values to fetch there. kprobe help events
describes the language.

# TARGETS
-p PID :: A running process. -f includes the children that it forks.
-- CMD ARG… :: A command. It stops before its first instruction until the probes are in. What
the dynamic loader runs before that, such as resolvers of IFUNCs, is not seen.
-x FILE :: Without -p and CMD: every process that runs FILE, forked children that run it too.
--name GLOB :: Every process whose name, or whose program's file name, matches GLOB.

-x FILE and --name take the processes that run now. With --wait they also take
those that start later, until ^C.

As root, kprobe takes a process that starts later before its first instruction.
The kernel makes a process that is about to execute FILE wait for kprobe, for
one second at most. No other program waits. Some processes may be taken a moment
after their start: interpreters of scripts, a file that --name sees for the
first time, and all processes when kprobe is not root. kprobe says so at the
start.

With -- CMD, ^C goes to the command too. The trace may end before the command:
by -n, by -t, or because nobody reads the output any more. The command then runs
on, as with strace, and kprobe prints how to end it. --kill-on-exit sends it a
SIGTERM instead. That never affects a process that was running before.

# KEPT DEFINITIONS
Without a definition, the trace uses the kept events whose files the target has
mapped (see kprobe add). The name of a kept event, or a shell pattern for names,
stands for its definitions.

Kept events of a library that is not loaded wait for it. With --pending all
definitions do. They are armed when the library is loaded, before its
constructors run. When a library is unloaded, its probes are gone until it is
loaded again. -v reports this.

# TRACE LINES
A line has the format of the kernel's trace file:

  TASK-TID     [CPU] SECONDS.MICROS: EVENT: (SYM+0xOFF/0xSIZE) NAME=VALUE …
  TASK-TID     [CPU] SECONDS.MICROS: EVENT: (CALLER+0xOFF/0xSIZE <- FUNC) NAME=VALUE …

The second form is that of a return: FUNC returned to CALLER.

Texts print in double quotes, with the escapes \", \\, \n, \t, \r, and \xHH for
bytes that are not printable or not UTF-8. C, Go and Python read such a string
back byte for byte. If a text was longer than what is shown, ... follows the
closing quote. -s N shows, and records, at most N bytes of a text.

With --format json each hit is an object on a line of its own. An object of type
"armed" comes first, unless -q is given: all probes are in, so many by jumps and
so many by breakpoints. An object of type "end" closes the stream. Integers
beyond 2^53 are strings. A text that is not UTF-8 has a twin NAME_hex. "cut"
lists the values that are longer than what is shown.

Everything else goes to standard error. At the end kprobe prints there how many
events there were, how many were lost, and whether the target runs on.

# LIMITS AND TRIGGERS
--limit N/s records the first N hits of each event in each second. The program
drops the others, and kprobe counts them.

--expire TIME makes the probes switch themselves off, even if kprobe was killed
or has left. A trace that is still running then ends, as with -t.

--trigger performs an action at hits of an event, such as traceoff. kprobe help
events lists the actions.

# DETACHED PROBES
--detach leaves the probes in the process and ends kprobe. Nothing traces the
process then. Its hits go into a ring buffer for each CPU that keeps the newest.

  kprobe snapshot -p PID    prints what the buffers hold
  kprobe trace -p PID       prints that and then what comes; the probes stay
  kprobe del -p PID '*'     takes the probes out

--keep FILE puts the buffers into FILE, where the hits remain after the process
has ended, however it ended. --calls records functions at their entry and at
their return. kprobe graph and kprobe report then show the calls, from the
process, from FILE or from a core dump.

Only jumps can be detached. kprobe leaves out breakpoints, watchpoints and
definitions that wait for a library, and says so. Children that the process
forks record nothing.

No tracer is there to handle a fault, so a probe asks the kernel before it reads
+OFFS(FETCHARG). That takes some 150 ns. It asks once for each page of the heap,
stacks and variables that were there when kprobe left; each time in shared
memory, in files, in what is mapped later, and in programs of Go or with code
made at run time. -v says which. If seccomp rules might judge the system call,
which only root can find out, the probe is left out. If the program sets rules
later, probes ask no more: what would need it is (fault).

--ring SIZE sets the size of each CPU's buffer (default 2 MB; a file of --keep
takes twice that). It should hold the hits of a tenth of a second: if a thread
loses its CPU in the middle of a record, and the buffer comes round to that
record, further hits of the CPU are lost, and counted.

# UNTRACED TARGETS
--let-go stops tracing the target while nothing changes: once the probes are in,
kprobe attaches only for a moment when they change. Signals, threads and forks
then cost the target what they cost without kprobe, and gdb or strace can
attach. Use it for programs that get many signals or fork much. A hit costs the
same, except that a read through a pointer may take 150 ns more, as with
--detach.

Some things need a tracer, and are given up:

Faults :: If the program catches faults, kprobe can't repair a fault of a probe's own code:
where there is no stack or no thread-local block for it, or where the program has forbidden
itself to read the time stamp counter.
Single steps :: A program that single-steps itself is shown kprobe's code.
Execution :: A program that the target executes runs some 20 ms before it is probed.
Libraries :: A library that a definition waits for is noticed about a tenth of a second after it
is loaded, not before its constructors run.

With -f, what the target forks records from its first instruction. Breakpoints
and watchpoints need a tracer: a process that has one stays traced. -v, kprobe
check and kprobe list --sites say which.

# HISTOGRAMS
--hist KEY[,KEY…] counts hits by their values instead of printing lines, and
prints the counts at the end, in the format of the kernel's hist triggers. A KEY
is the name of a value or one of these:

common_pid, common_comm :: the thread, its name
common_cpu :: the CPU
common_stacktrace :: the stack, of a definition that ends with stack=N
__probe_ip :: where the probe is
__probe_func, __probe_ret_ip :: of a return probe: the function, where it returned to

A key may have a modifier: .hex, .sym, .sym-offset, .log2, .buckets=N, or
.execname (of common_pid). Options of the kernel's triggers may follow the keys:

:vals=NAME,… :: add up values; each, hitcount too, may have .hex, .percent or .graph
:sort=NAME[.descending] :: the order of the entries
:size=N :: the most entries (default 2048); hits beyond them are counted as dropped

--lines prints the hits too. --interval prints the counts again and again.

Hits that come faster than kprobe reads them are counted as lost, with their
share. A larger --ring loses fewer. No hit is lost where one key is a number
with .log2, or with .buckets=N where N is a power of two, and --lines, -n and
vals= are not used: the process itself counts such hits.

# EXIT STATUS
0 when the trace went well; the status of CMD if it has ended (128+N when signal
N ended it); 1 when something failed; 2 for misuse.`

const traceExample = `  kprobe trace 'p:dir libc:opendir path=+0($arg1):string' -- ls /
  kprobe trace -p 4711 -n 100 libc:write
  kprobe trace -p 4711 'r:slow work ms=$retval:u64 if ms > 100'
  kprobe trace -p 4711 --hist size.log2 'libc:malloc size=$arg1:u64'
  kprobe trace -p 4711 --hist from.sym:vals=n:sort=n 'libc:malloc n=$arg1:u64 from=$stack0'
  kprobe trace -x ./server -F probes.txt --format json -p 4711 | jq .args`

// timeFlag adds --time.
func timeFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "time", output.Clocks[0], "`"+strings.Join(output.Clocks, "|")+"`: print times since boot, since the start, since 1970, as time of day, or since the previous hit")
	_ = c.RegisterFlagCompletionFunc("time", cobra.FixedCompletions(output.Clocks, cobra.ShellCompDirectiveNoFileComp))
}

type traceRun func(ctx context.Context, d *Deps, m *messages, o *traceOptions) error

func newTraceCmd(d *Deps, m *messages, run traceRun) *cobra.Command {
	o := &traceOptions{}
	c := &cobra.Command{
		Use:     "trace [flags] [DEF…|EVENT…] [-p PID… | -- CMD ARG…]",
		Short:   "print a line for each hit of a probe",
		Long:    traceLong,
		Example: traceExample,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.arguments(c, d, args); err != nil {
				return err
			}
			if _, err := output.NewClock(o.time, 0, time.Time{}); err != nil {
				return err
			}
			if o.strSize < 1 || o.strSize > fetch.MaxString {
				return misuse("-s %d: give a number from 1 to %d", o.strSize, fetch.MaxString)
			}
			if c.Flags().Changed("rotate") && (o.outputFile == "" || o.outputFile == "-") {
				return misuse("--rotate goes with -o FILE")
			}
			if err := o.parseHists(c); err != nil {
				return err
			}
			if err := o.checkDetach(c); err != nil {
				return err
			}
			return run(c.Context(), d, m, o)
		},
	}
	o.register(c, d)
	c.Flags().Uint64VarP(&o.events, "events", "n", 0, "end after `N` hits")
	c.Flags().StringArrayVar(&o.hists, "hist", nil, "`KEY[,KEY…]`: count hits by the values of KEY instead of printing lines (repeat)")
	c.Flags().BoolVar(&o.lines, "lines", false, "with --hist: print a line for each hit too")
	c.Flags().IntVarP(&o.strSize, "strsize", "s", fetch.MaxString, "show at most `N` bytes of a text; ... marks one that is cut")
	o.addControl(c.Flags())
	o.page.register(c.Flags(), "--hist")
	o.addDetach(c)
	o.addInterval(c, "with --hist: print the counts every `TIME`, too")
	timeFlag(c, &o.time)
	c.Flags().Var(&o.rotate, "rotate", "`SIZE[,N]`: with -o FILE, start a new file at SIZE and keep N older ones (9): FILE.1, …")
	return c
}

func runTrace(ctx context.Context, d *Deps, m *messages, o *traceOptions) error {
	if o.detach {
		return runDetach(ctx, d, m, o)
	}
	if r := o.recorder(d); r != nil {
		return runFollow(ctx, d, m, o, r)
	}
	if err := o.page.create(); err != nil {
		return err
	}
	sink, file, done, err := o.printer(d)
	if err != nil {
		return err
	}
	w := sink.Writer
	sink.Workers = runtime.GOMAXPROCS(0)
	o.armed = writeArmed(w)
	if len(o.specs) > 0 {
		return runHist(ctx, d, m, o, w, file, done, sink)
	}
	look := o.losses(d, m, w, sink.Format.Clock)
	o.watch = func(stats func() []probe.Stats) func() {
		return beside(func(ctx context.Context) error {
			return again(ctx, lossInterval, false, nil, func() error { return look(stats()) })
		})
	}
	sum, err := o.run(ctx, d, m, o.engine(d, m), file, sink)
	err = both(err, printed(sink))
	if o.form == output.JSON {
		// What fails here is said by the writer when it is closed.
		_ = look(sum.Stats)
	}
	return o.conclude(d, m, w, done, sink.Printed(), sum, err)
}

// printer opens the output and makes what prints hits on it.
func (o *traceOptions) printer(d *Deps) (sink *output.Trace, file *os.File, done func() error, err error) {
	mono, wall := d.Now()
	clock, err := output.NewClock(o.time, mono, wall)
	if err != nil {
		return nil, nil, nil, err
	}
	w, file, done, err := o.open(d)
	if err != nil {
		return nil, nil, nil, err
	}
	if d.Terminal && o.outputFile == "" && o.form == output.Text && (len(o.specs) == 0 || o.lines) {
		if _, err := w.Write([]byte(output.Header)); err != nil {
			return nil, nil, nil, fail(err)
		}
	}
	format := output.Formatter{Form: o.form, Clock: clock, Lines: o.verbose, Signatures: o.verbose}
	return &output.Trace{Writer: w, Format: format, Limit: o.events}, file, done, nil
}

// printed has the lines of a trace written that are still on their way. That nobody
// reads them is no failure.
func printed(sink *output.Trace) error {
	if err := sink.Close(); err != nil && !errors.Is(err, output.ErrClosed) {
		return fail(err)
	}
	return nil
}

// lossInterval is how often a trace looks for losses.
const lossInterval = time.Second

// losses gives a function that says what was lost since it was called last: in
// JSON by objects, which then add up to the end's number; in text once, on
// standard error, while there is still time to do something about it.
func (o *traceOptions) losses(d *Deps, m *messages, w *output.Writer, clock output.Clock) func([]probe.Stats) error {
	var seen output.Losses
	said := false
	return func(stats []probe.Stats) error {
		var text []byte
		for _, l := range seen.Since(stats) {
			if o.form == output.JSON {
				now, _ := d.Now()
				text = output.AppendLossJSON(text, &l, clock, now)
			} else if !said {
				said = true
				m.warn("hits of %s/%s are lost: they come faster than they are written; fewer values, a filter, a larger --ring, or profile instead of trace", l.Event.Group, l.Event.Name)
			}
		}
		if text == nil {
			return nil
		}
		_, err := w.Write(text)
		return err
	}
}

// conclude ends a trace of that many events: its stream, its output, and the
// line for the person.
func (o *traceOptions) conclude(d *Deps, m *messages, w *output.Writer, done func() error, events uint64, sum probe.Summary, err error) error {
	if o.form == output.JSON {
		err = both(err, closeJSON(w, events, sum.Stats, err))
	}
	if werr := done(); werr != nil && !errors.Is(werr, output.ErrClosed) && err == nil {
		err = fail(werr)
	}
	if err != nil {
		return err
	}
	lost := output.Sum(sum.Stats).Lost
	if !o.quiet || lost > 0 {
		m.say("%s", o.endLine(events, &sum))
	}
	if !o.quiet {
		o.sayRest(d, m, &sum)
	}
	return outcome(sum)
}

// closeJSON ends a stream of JSON: with the error that ended it, if one did,
// and the totals.
func closeJSON(w *output.Writer, events uint64, stats []probe.Stats, cause error) error {
	var text []byte
	if cause != nil {
		text = output.AppendError(text, oneLine(headline(cause)))
	}
	text = output.AppendEnd(text, events, stats)
	if _, err := w.Write(text); err != nil && !errors.Is(err, output.ErrClosed) {
		return fail(err)
	}
	return nil
}

// outcome gives the status of a command that has ended.
func outcome(sum probe.Summary) error {
	if sum.HasStatus {
		return commandStatus(sum.Status)
	}
	return nil
}
