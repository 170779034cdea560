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

const traceLong = `Puts probes into a running process (-p PID) or into a command that it starts
(-- CMD ARG…), prints one line for each hit, and takes the probes out again when
the target has ended, -n or -t is reached, or on ^C. The target runs on.

Without -p and a command, -x FILE is about every process that runs FILE, and --name
GLOB takes every process whose name, or whose file's, matches: those that run now,
and with --wait those that start later, until ^C. As root they are taken before their
first instruction: the kernel has a process that is about to execute FILE wait for
kprobe, a second at most; no other program waits. Interpreters of scripts may be taken
a moment later, as is a file that --name sees for the first time, and all without
root; kprobe says so when it begins. Forked children that run FILE are among them.

Without a definition it uses the kept events whose files the target has mapped; the
name of a kept event, or a shell pattern for names, stands for its definitions
(see kprobe add). Kept events of libraries that the target has not loaded wait
for them, as do all definitions with --pending: they are armed when the library
is loaded, before its constructors run. When a library is unloaded its probes
are gone until it returns. -v says so.

The line is that of the kernel's trace file:

  TASK-TID     [CPU] SECONDS.MICROS: EVENT: (SYM+0xOFF/0xSIZE) NAME=VALUE …
  TASK-TID     [CPU] SECONDS.MICROS: EVENT: (CALLER+0xOFF/0xSIZE <- FUNC) NAME=VALUE …

With --detach the probes are left in the process, and kprobe ends: nothing traces the
process, and its hits go into a buffer that keeps the newest (--ring is the size of
each CPU's; where a thread is kept from running in the midst of a record until it has
come round, hits are lost, and counted: it should hold those of a tenth of a second).
kprobe snapshot -p PID prints it; kprobe trace -p PID without a definition prints it
and then what comes, and leaves the probes; kprobe del -p PID '*' takes them out.
What needs a tracer is left out and said: breakpoints, handlers, definitions that
wait. Children that the process forks record nothing. With --keep
FILE the hits are in that file, and there when the process has ended, however it did.
With --calls functions are followed from their entry to their return, and kprobe graph
and kprobe report show the calls of the process, of the FILE or of a core dump.
Nobody is there to take a fault: the kernel is asked before each +OFFS(FETCHARG) is
read, which takes some 150 ns. Where seccomp rules may judge that question, which root
can find out, such a probe is not left.

With --let-go nothing traces the target once the probes are in, and for a moment when
they change: signals, threads and forks cost it what they cost without kprobe, and gdb
or strace may attach. It is for programs that get many signals or fork much; a hit
costs the same, but for the 150 ns of each read as above. It gives up what only a
tracer sees to: a program that catches faults of its own where a detour has no stack or
no thread-local block, that has forbidden itself the time, or steps itself, and a
program that is executed runs some 20 ms before it is probed. With -f what the target
forks records from its first instruction. A library that a definition waits for is
seen about a tenth of a second after it was loaded, not before its constructors.
Breakpoints, watchpoints and handlers need a tracer, and their process keeps it: -v,
check and list --sites say which.

With --limit N/s the first N hits of each event in each second are recorded, and the
others counted and dropped in the program. With --expire TIME the probes switch
themselves off, even where kprobe was killed or has left; a trace that is still there
ends then, as by -t. --trigger does something at hits of an event: kprobe help events
has the actions.

With --format json each hit is an object on a line of its own. An object of type
"armed" comes first, unless -q is given: all probes are in, so many by jumps and
so many by breakpoints. An object of type "end" closes the stream. Values beyond 2^53 are
strings; text that is not UTF-8 has a twin NAME_hex.

Texts print in double quotes, with \", \\, \n, \t, \r, and \xHH for each byte of what
can't be seen or is no UTF-8, so that they can be read back byte for byte, as
strings of C, Go and Python are. Where there was more than is shown, the closing
quote is followed by ... and JSON lists the value's name in "cut". -s N shows less,
and records less in the program.

With --hist KEY[,KEY…] hits are counted by their values instead, and the counts
printed at the end in the form of the kernel's hist triggers. A KEY is the name
of a value, or common_pid (the thread), common_cpu, common_comm (its name),
common_stacktrace (of a definition that ends with stack=N), __probe_ip (where the
probe is; of a return probe __probe_func and __probe_ret_ip), with a modifier:
.hex, .sym, .sym-offset, .log2, .buckets=N, common_pid.execname. What else a
trigger has may follow: :vals=NAME,… to add values up, :sort=NAME[.descending],
:size=N for the most entries, 2048 if not said; hits beyond them are counted as
dropped, and hits that were lost, as they came faster than they could be read, as
lost, with their share; a larger --ring loses fewer. None are lost where one key is a
number with .log2, or with .buckets=N of a power of two, and there is no --lines, -n
or vals=: such hits are counted in the process itself. A value in vals=, hitcount
too, may have a modifier: .hex, .percent, or .graph. --lines prints the hits too,
--interval the counts again and again.

With -- CMD the trace may end before the command does: by -n, -t, or when nobody
reads its output any more. The command then runs on, as strace leaves it, and what
to end it with is said; --kill-on-exit ends it with a SIGTERM, and takes no
process that was running before. ^C goes to the command, too.

Everything else goes to standard error: at the end, how many events there were,
how many were lost, and whether the target runs on.

kprobe help events has the language of definitions.

The exit status is 0 when the trace went well, that of CMD where it has ended
(128+N when signal N ended it), 1 when something failed, 2 for misuse.`

const traceExample = `  kprobe trace 'p:dir libc:opendir path=+0($arg1):string' -- ls /
  kprobe trace -p 4711 -n 100 libc:write
  kprobe trace -p 4711 'r:slow work ms=$retval:u64 if ms > 100'
  kprobe trace -p 4711 --hist size.log2 'libc:malloc size=$arg1:u64'
  kprobe trace -p 4711 --hist from.sym:vals=n:sort=n 'libc:malloc n=$arg1:u64 from=$stack0'
  kprobe trace -x ./server -F probes.txt --format json -p 4711 | jq .args`

// timeFlag adds --time.
func timeFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "time", output.Clocks[0], "times of hits, `"+strings.Join(output.Clocks, "|")+"`: since boot, since the start, since 1970, of day, since the hit before")
	_ = c.RegisterFlagCompletionFunc("time", cobra.FixedCompletions(output.Clocks, cobra.ShellCompDirectiveNoFileComp))
}

type traceRun func(ctx context.Context, d *Deps, m *messages, o *traceOptions) error

func newTraceCmd(d *Deps, m *messages, run traceRun) *cobra.Command {
	o := &traceOptions{}
	c := &cobra.Command{
		Use:     "trace [flags] [DEF…|EVENT…] [-p PID… | -- CMD ARG…]",
		Short:   "print a line for each hit of probes in a process",
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
	c.Flags().StringArrayVar(&o.hists, "hist", nil, "count hits by the values of `KEY[,KEY…]`, and print no lines")
	c.Flags().BoolVar(&o.lines, "lines", false, "with --hist, print a line for each hit too")
	c.Flags().IntVarP(&o.strSize, "strsize", "s", fetch.MaxString, "show no more than `N` bytes of a text; three periods follow one that is cut")
	o.addControl(c.Flags())
	o.page.register(c.Flags(), "--hist")
	o.addDetach(c)
	o.addInterval(c, "with --hist, print the counts after each `TIME` too")
	timeFlag(c, &o.time)
	c.Flags().Var(&o.rotate, "rotate", "with -o FILE, begin it anew at `SIZE[,N]`, and keep N (9) older ones: FILE.1 …")
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
		m.say("%s", output.EndLine(events, sum.Stats, sum.Alive, sum.Killed))
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
