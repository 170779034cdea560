package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"kprobe/output"
	"kprobe/probe"
)

type profileOptions struct {
	sessionOptions
	total   bool
	latency bool
	// names are the places of the sessions of others.
	names map[placeAt]placeCalled
}

const profileLong = `Counts hits instead of printing them. kprobe profile puts probes in as kprobe
trace does. When the target ends, -t is reached, or on ^C, it prints the name,
the hits and the missed hits of each event, in the format of the kernel's
kprobe_profile. Targets are chosen as for kprobe trace.

If -p PID names a process that another kprobe is tracing, or one with detached
probes, and no definition is given, it shows the counters of those probes. This
does not disturb the trace or the process. Otherwise, without a definition, it
counts the kept events whose files the target has mapped.

# COUNTERS
Hits are all times that a thread reached the place, as the kernel counts them.
They include hits that the definition's filter refused. Tables show these under
FILTERED as well, JSON as "filtered". In a pipe a line is EVENT HITS NMISSED,
and the summary on standard error says how many hits of each event passed the
filter. --latency counts only calls that passed.

Each probe counts from the moment when it is in. Thousands of probes come in
over some seconds, so the counters of two events of one function can differ by
the calls of that time. A return that is counted may end a call that began
before the probe was in.

A missed hit is a call for which a return probe had no free instance, or one of
a circle of jumps that it can't follow. It is not among the hits.

--maxactive sets how many calls of a function can be followed at a time (default
1024). Further calls are missed. Without --maxactive, 32 and more functions
share up to 65536 instances. Functions that cannot share, if there are more than
64, have fewer than 1024 each, but at least 64. The instances of calls that
never return are freed when others need them, some at once, others within 0.2 s.
It takes longer if there are so many that looking for them would stop the target
for more than a twentieth of the time. Calls in between that find no instance
are missed too.

On a terminal the counters are a table that is redrawn every second, the fastest
event first. With --interval they are printed again and again, also elsewhere,
each time below a line "# SECONDS" since the start. With --format json each
event is an object, and an object of type "end" comes last.

--each counts places instead of events: each function that a pattern matches,
and each line or inlined instance that a name stands for. Places that no thread
reached are left out. The others are sorted by their hits. In a pipe a line is
EVENT PLACE HITS NMISSED.

# LATENCY
--latency takes functions, or definitions of return probes, and shows how long
their calls take from entry to return: for each function the number of calls,
the shortest, average, median (p50), 99th percentile (p99) and longest time in
nanoseconds, and a histogram by powers of two. --html FILE draws the times of
all functions on one scale, on a page that needs no network.

A call within a call counts in both. A call that never returns (longjmp, an
exception) is not counted. A function that several words name is counted once:
for the word that is not a pattern, else for the first.

The process itself counts the calls, so no call is lost however fast they come.
There are three exceptions: calls that breakpoints follow, calls when there are
more than 1024 functions, and calls of more than an hour. They are read as
records. LOST counts those that came faster than kprobe could read; a larger
--ring loses fewer.

Median and percentile are within 1 % of the exact value. All else is exact, in
steps of the processor's clock. On AMD's processors a step is 10 ns: a shorter
call reads as 0 or 10 ns, but the average of many is right.

# PROMETHEUS
--metrics exports the counters as OpenMetrics: at http://ADDR:PORT/metrics, or
in a FILE. FILE is replaced as a whole every 15 s, or every --interval, and at
the end. If its name ends with .prom, it has the format that node_exporter's
textfile collector reads.

kprobe_{hits,filtered,lost,missed}_total :: by event, function and module: at most 1000, the
rest is summed up as "(other)"
kprobe_process_hits_total :: by event, pid and process, of the processes traced now
kprobe_call_duration_seconds :: with --latency: a histogram, classic and native, of at most 100
functions

Definitions with an argument trace_id, and maybe span_id, add exemplars. Their
calls are recorded for that. A reader that is slow or hangs is cut off; the
trace never waits for it.`

const profileExample = `  kprobe profile -t 10s -p 4711 libc:malloc libc:free
  kprobe profile 'libc:str*' -- ls -lR /usr
  kprobe profile 'p:big libc:malloc size=$arg1:u64 if size > 65536' -- python3 -c 'bytes(1 << 20)'
  kprobe profile --each -t 10s -p 4711 'libc:pthread_*'
  kprobe profile --latency -p 4711 libc:malloc 'libc:pthread_mutex_*'
  kprobe profile --latency 'r:big libc:malloc size=$arg1:u64 if size > 65536' -- ls -lR /usr
  kprobe profile --latency --metrics :9464 -p 4711 libc:malloc 'libc:pthread_*'
  kprobe profile --interval 1s --total -p 4711 libc:malloc libc:free > counts.txt`

type profileRun func(ctx context.Context, d *Deps, m *messages, o *profileOptions) error

func newProfileCmd(d *Deps, m *messages, run profileRun) *cobra.Command {
	o := &profileOptions{}
	c := &cobra.Command{
		Use:     "profile [flags] [DEF…|EVENT…] [-p PID… | -- CMD ARG…]",
		Short:   "count hits, or measure how long calls take",
		Long:    profileLong,
		Example: profileExample,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.arguments(c, d, args); err != nil {
				return err
			}
			if o.page.name != "" && !o.latency {
				return misuse("--html goes with --latency; kprobe record keeps hits, and kprobe report --html draws them")
			}
			if err := o.page.apart(o.outputFile); err != nil {
				return err
			}
			if o.each && o.latency {
				return misuse("--each and --latency cannot be used together: --latency has a line for each function")
			}
			if err := o.checkInterval(c); err != nil {
				return err
			}
			return run(c.Context(), d, m, o)
		},
	}
	o.register(c, d)
	o.addInterval(c, "print the counters every `TIME`, such as 1s")
	o.addSwitches(c.Flags())
	c.Flags().BoolVar(&o.total, "total", false, "add a line with the sums of all events")
	c.Flags().BoolVar(&o.each, "each", false, "count each place by itself, such as the functions of a pattern")
	c.Flags().StringVar(&o.metrics, "metrics", "", "`ADDR:PORT|FILE`: export the counters to Prometheus, by HTTP or in a file")
	c.Flags().BoolVar(&o.latency, "latency", false, "measure how long calls of functions take")
	o.page.register(c.Flags(), "--latency")
	return c
}

// nothing is the sink of a session that only counts.
type nothing struct{}

// Hit implements probe.Sink.
func (nothing) Hit(*probe.Hit) error { return nil }

func runProfile(ctx context.Context, d *Deps, m *messages, o *profileOptions) error {
	x, err := o.export(m)
	if err != nil {
		return err
	}
	defer x.end(o)
	if o.latency {
		return runLatency(ctx, d, m, o, x)
	}
	lives, err := o.lives(d)
	if err != nil {
		return fail(err)
	}
	if lives != nil {
		return runLiveProfile(ctx, d, m, o, lives, x)
	}
	w, file, done, err := o.open(d)
	if err != nil {
		return err
	}
	o.armed = writeArmed(w)
	v := newWatcher(d, o, w)
	o.watch = v.watch
	x.watch(o)
	p := o.engine(d, m)
	p.CountOnly = true
	sum, err := o.run(ctx, d, m, p, file, nothing{})
	if errors.Is(err, errNoDefinitions) && len(o.pids) > 0 {
		err = misuse("no kprobe is tracing process %s, so there are no counters to show; name a place to count, such as libc:openat", o.pids.String())
	}
	if hasRun(err) {
		err = both(err, v.end(o.last(sum.Stats), d.Terminal && o.outputFile == ""))
	}
	return o.conclude(d, m, w, done, sum, err)
}

// last are the counters to show at the end, of those of the events.
func (o *profileOptions) last(events []probe.Stats) []probe.Stats {
	if o.each {
		return o.atEnd
	}
	return events
}

// conclude ends a profile: its stream, its output, and the line for the person.
func (o *profileOptions) conclude(d *Deps, m *messages, w *output.Writer, done func() error, sum probe.Summary, err error) error {
	if o.form == output.JSON {
		err = both(err, closeJSON(w, output.Sum(sum.Stats).Recorded, sum.Stats, err))
	}
	if derr := done(); err == nil {
		err = derr
	}
	if err != nil && !errors.Is(err, output.ErrClosed) {
		if errors.Is(err, errNoDefinitions) || errors.Is(err, errNoFunction) {
			return err
		}
		return fail(err)
	}
	if !o.quiet {
		m.say("%s", o.endLine(output.Sum(sum.Stats).Recorded, &sum))
		if o.form == output.Text && !o.latency && len(sum.Stats) > 1 { // of one the line before says it
			for _, line := range output.FilteredLines(sum.Stats) {
				m.say("%s", line)
			}
		}
		o.sayRest(d, m, &sum)
	}
	return outcome(sum)
}
