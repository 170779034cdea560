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

const profileLong = `Counts hits instead of printing them: puts probes in as kprobe trace does, and
when the target has ended, -t is reached, or on ^C, prints for each event its
name, its hits and its missed hits, in the form of the kernel's kprobe_profile.
With --format json it is one object for each event, and an object of type "end".

On a terminal the counters of a process are a table that is drawn anew every
second, the fastest event first. With --interval they are printed again and
again elsewhere too, each time below a line with the seconds since the start.

Hits are all times that a place was reached, as the kernel counts them: those
that the definition's filter refused are among them, in tables, in a pipe and in
JSON alike. These stand beside them, under FILTERED ("filtered" in JSON); in a
pipe, whose lines are EVENT HITS NMISSED, the summary on standard error says how
many of each event's hits passed. With --latency what is counted has passed.

With --each a line is for a place, not for an event: for each function that a
pattern stands for, each line or inlined instance that a name stands for. Places
that were not reached are left out, the others come in the order of their hits.
In a pipe a line is then EVENT PLACE HITS NMISSED.

With --latency the words are functions, or definitions of return probes. For
each function it shows how many calls returned, and of the time from entry to
return the shortest, the average, the median, the 99th percentile and the
longest, in nanoseconds, and how the times are spread, by powers of two. A call
inside a call counts in both. Calls that never return (longjmp, exceptions) are
not there; calls that found no free instance are in the missed hits, and
--maxactive, here 1024 where nothing is said, sets how many each function has;
where nothing is said 32 functions and more share up to 65536, and those that
can't share have fewer, but 64 at least, where they are more than 256. A function that
several words name is counted once: for the word that is no pattern, else for
the first. Calls are counted in the process itself, so that none is lost however
fast they come. Those of breakpoints, of more than 1024 functions, and that took
more than an hour are read as records: where these came faster than they could
be read they stand under LOST, and a larger --ring loses fewer. The instances of
calls that never return come back when they are needed, some at once, others
within 0.2 s: calls that find none meanwhile are missed, too. Median and
percentile are within 1 % of the exact value, all else is exact, in steps of the
processor's clock: on AMD's processors they are 10 ns, and a call that takes
less reads as 0 or 10 ns. The average of many such calls is right. --html FILE
draws the times of every function on the same scale, on a page that needs no
network.

With --metrics the counters are there for Prometheus, as OpenMetrics: at
http://ADDR:PORT/metrics, or in a FILE that is replaced as a whole every 15 s, or as
--interval says, and at the end. A FILE that ends with .prom is in the format that
node_exporter reads in the folder of its textfile collector. Counters are
kprobe_hits_total, _filtered_total, _lost_total and _missed_total, by event, function
and module (at most 1000, the rest is added up under "(other)"), and
kprobe_process_hits_total, by event, pid and process, of those that are traced now.
With --latency, kprobe_call_duration_seconds is a histogram, classic and native, of at
most 100 functions; definitions that have an argument trace_id, and maybe span_id, give
exemplars, and have their calls recorded for that. A reader that is slow or hangs is cut
off; the trace never waits for it.

Without a definition and with -p PID of a process that another kprobe is tracing,
that one's counters are shown; neither it nor the process notices. Otherwise the
kept events are counted whose files the target maps.`

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
		Short:   "count the hits of probes in a process",
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
	o.addInterval(c, "show the counters after each `TIME`, such as 1s")
	o.addSwitches(c.Flags())
	c.Flags().BoolVar(&o.total, "total", false, "add a line with the sums over all events")
	c.Flags().BoolVar(&o.each, "each", false, "count each place by itself: the functions of a pattern, the most hits first")
	c.Flags().StringVar(&o.metrics, "metrics", "", "give the counters to Prometheus, at `ADDR:PORT|FILE`")
	c.Flags().BoolVar(&o.latency, "latency", false, "show how long the functions' calls take")
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
	if err == nil {
		err = v.end(o.last(sum.Stats), d.Terminal && o.outputFile == "")
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
		m.say("%s", output.EndLine(output.Sum(sum.Stats).Recorded, sum.Stats, sum.Alive, sum.Killed))
		if o.form == output.Text && !o.latency && len(sum.Stats) > 1 { // of one the line before says it
			for _, line := range output.FilteredLines(sum.Stats) {
				m.say("%s", line)
			}
		}
		o.sayRest(d, m, &sum)
	}
	return outcome(sum)
}
