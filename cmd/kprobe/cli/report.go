package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/internal/plural"
	"kprobe/output"
	"kprobe/output/html"
	"kprobe/output/recording"
	"kprobe/output/report"
)

type reportOptions struct {
	pids     pidList
	by       string
	weight   string
	diff     string
	folded   string
	pprof    string
	perfetto string
	html     string
	form     output.Form
}

type reportRun func(context.Context, *Deps, *messages, hitsFile, *reportOptions) error

const reportLong = `Shows how many calls there were and how long they took. It reads a recording of
kprobe record, a file of trace --detach --keep, a core dump of a process with
detached probes, or, with -p PID, such a process, which it does not stop.

The table has a row for each function, or by --by for each stack, thread or
value:

calls :: calls that returned or were left
total :: time in these calls and in open ones; a call of a function within itself counts once
self :: total without the recorded calls that they made
avg, p50, p99, max :: average, median, 99th percentile and maximum of a call, percentiles within
1 %
open :: calls that had not returned when the recording ended
no return :: calls left by an exception or longjmp, or whose return's hit is missing

Times are wall time: a call that waits takes as long as it waits.

# EXPORTS
--folded FILE :: paths of calls with the nanoseconds spent there, for flame graph tools
--pprof FILE :: a profile for go tool pprof
--perfetto FILE :: a timeline for ui.perfetto.dev, a track for each thread
--html FILE :: a page for a browser that needs no network: flame graph, timeline of threads,
heat map of how long calls took when, and the table

If hits have stacks (stack=N), paths are these stacks, and hits are counted
instead of times. --weight NAME weighs paths by a value of the hits: with stacks
and the sizes that malloc is asked for, the flame graph is a heap profile by
bytes. The table then has the sum for each row, largest first.

--diff FILE compares with an earlier recording. The colours of the page's flame
graph then show what has become a larger part of all, and what a smaller one.

The page stays small however long the recording is: it merges paths of less than
0.05 % and draws at most the 2000 longest calls of each thread. It says what it
leaves out.`

const reportExample = `  kprobe report web.kprobe
  kprobe report web.kprobe --by thread
  kprobe report web.kprobe --folded web.folded --pprof web.pb.gz --perfetto web.perfetto
  kprobe report after.kprobe --diff before.kprobe
  kprobe report heap.kprobe --weight size --html heap.html --folded heap.folded
  kprobe report web.kprobe --html web.html
  kprobe report -p 4711`

func newReportCmd(d *Deps, m *messages, run reportRun) *cobra.Command {
	o := &reportOptions{}
	c := &cobra.Command{
		Use:     "report [flags] FILE|CORE|-p PID",
		Short:   "show how long recorded calls took",
		Long:    reportLong,
		Example: reportExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args)+len(o.pids) != 1 {
				return misuse("name one recording, or one process: -p PID")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if o.by == "" {
				return misuse("--by func, stack, thread, or the name of a value")
			}
			var from hitsFile
			if len(o.pids) > 0 {
				from.pid = o.pids[0]
			} else {
				from.name = args[0]
			}
			return run(c.Context(), d, m, from, o)
		},
	}
	f := c.Flags()
	f.VarP(&o.pids, "pid", "p", "report on the detached probes of this process")
	f.StringVar(&o.by, "by", "func", "`func|stack|thread|NAME`: print a row for each function, stack, thread, or value NAME")
	f.StringVar(&o.weight, "weight", "", "weigh paths by the value `NAME` instead of time or count")
	f.StringVar(&o.diff, "diff", "", "compare with `FILE`, an earlier recording")
	f.StringVar(&o.folded, "folded", "", "write folded stacks to `FILE`, for flame graphs")
	f.StringVar(&o.pprof, "pprof", "", "write a profile to `FILE`, for go tool pprof")
	f.StringVar(&o.perfetto, "perfetto", "", "write a timeline to `FILE`, for ui.perfetto.dev")
	f.StringVar(&o.html, "html", "", "write a page with graphs to `FILE`, for a browser")
	addFormat(f, &o.form)
	f.SortFlags = false
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"func", "stack", "thread"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// apart refuses to write over a recording that is read.
func (o *reportOptions) apart(recordings ...string) error {
	for _, out := range []string{o.folded, o.pprof, o.perfetto, o.html} {
		there, err := os.Stat(out)
		if out == "" || err != nil {
			continue
		}
		for _, name := range recordings {
			if read, err := os.Stat(name); err == nil && os.SameFile(read, there) {
				return misuse("%s is the recording: write to another file", out)
			}
		}
	}
	return nil
}

func runReport(ctx context.Context, d *Deps, m *messages, from hitsFile, o *reportOptions) error {
	if err := o.apart(from.name, o.diff); err != nil {
		return err
	}
	if err := eachItsFile(written{"--folded", o.folded}, written{"--pprof", o.pprof}, written{"--perfetto", o.perfetto}, written{"--html", o.html}); err != nil {
		return err
	}
	var timeline *report.Perfetto
	r := &report.Report{By: o.by, Weight: o.weight, Texts: o.perfetto != ""}
	var file *os.File
	if o.perfetto != "" {
		var err error
		if file, err = os.Create(o.perfetto); err != nil {
			return fail(fmt.Errorf("--perfetto: %w", err))
		}
		defer file.Close()
		timeline = report.NewPerfetto(file, r.Tracks.Now)
		r.Also = timeline
	}
	page := o.page(from.String(), r)
	in, err := readReport(ctx, d, m, from, r)
	if err != nil {
		return err
	}
	if r.Valueless() {
		return fail(noValue(from, o.by, r.Values()))
	}
	if o.weight != "" && r.Weighed == 0 {
		return fail(noWeight(from, o.weight, r.Numbers()))
	}
	o.sayPaths(m, r)
	if timeline != nil {
		if err := errors.Join(timeline.Close(lossesOf(in) > 0), file.Close()); err != nil {
			return fail(fmt.Errorf("--perfetto: %w", err))
		}
	}
	if o.folded != "" {
		if err := writeFile(o.folded, r.Folded); err != nil {
			return fail(fmt.Errorf("--folded: %w", err))
		}
	}
	if o.pprof != "" {
		if err := writeFile(o.pprof, func(w io.Writer) error { return r.Pprof(w, in) }); err != nil {
			return fail(fmt.Errorf("--pprof: %w", err))
		}
	}
	var old *report.Report
	if o.diff != "" {
		old = &report.Report{By: o.by, Weight: o.weight}
		if _, err := readReport(ctx, d, m, hitsFile{name: o.diff}, old); err != nil {
			return err
		}
	}
	if page != nil {
		page.In, page.Old = in, old
		if err := writeFile(o.html, page.Write); err != nil {
			return fail(fmt.Errorf("--html: %w", err))
		}
	}
	out := bufio.NewWriter(d.Out)
	human := d.Terminal
	r.Width = d.width()
	switch {
	case old != nil:
		err = r.Diff(out, old, human)
	case o.form == output.JSON:
		_, err = out.Write(r.AppendJSON(nil))
	default:
		err = r.Table(out, human)
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return fail(err)
	}
	sayRecording(m, in, r)
	return nil
}

// noValue says that no hit has the value that rows are to be by.
func noValue(from hitsFile, name string, values []string) error {
	if len(values) == 0 {
		return fmt.Errorf("%v: no hit has a value called %q: its events fetch none; --by takes func, stack and thread, too", from, name)
	}
	return fmt.Errorf("%v: no hit has a value called %q; the values are: %s", from, name, strings.Join(values, ", "))
}

// noWeight says that no hit has the number that paths are to be weighed by.
func noWeight(from hitsFile, name string, numbers []string) error {
	if len(numbers) == 0 {
		return fmt.Errorf("%v: no hit has a number called %q to weigh by: its events fetch none", from, name)
	}
	return fmt.Errorf("%v: no hit has a number called %q to weigh by; the numbers are: %s", from, name, strings.Join(numbers, ", "))
}

// sayPaths says which calls and hits the paths of exports lack.
func (o *reportOptions) sayPaths(m *messages, r *report.Report) {
	if n := r.Weightless; n > 0 {
		m.warn("%d hits have a %s that is negative, unreadable or not a number: they weigh nothing", n, o.weight)
	}
	if o.folded == "" && o.pprof == "" {
		return // the page says it itself
	}
	if n := r.Cut; n > 0 {
		m.warn("%d calls or hits are in no path of --folded and --pprof: there are more than %d paths", n, report.MaxPaths)
	}
	if n := r.Deep; n > 0 {
		m.warn("%d calls lie deeper than %d: their paths have the innermost only", n, report.MaxDepth)
	}
}

// page is what --html makes, for which the report gathers; nil without the flag.
func (o *reportOptions) page(name string, r *report.Report) *html.Page {
	if o.html == "" {
		return nil
	}
	all := &html.Collector{Report: r, Also: r.Also}
	r.Also = all
	return &html.Page{Name: filepath.Base(name), Report: r, Calls: all, OldName: filepath.Base(o.diff)}
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// readReport counts a recording; one that is cut off is said, and counted up to there.
func readReport(ctx context.Context, d *Deps, m *messages, from hitsFile, r *report.Report) (*recording.Reader, error) {
	in, done, err := d.openHits(ctx, m, from)
	if err != nil {
		return nil, err
	}
	stop := d.reading(m, from, in)
	err = r.Read(in)
	stop()
	var damaged *recording.DamagedError
	switch {
	case errors.As(err, &damaged):
		m.warn("%v: %v; what comes before is shown", from, err)
	case err != nil:
		return nil, fail(errors.Join(fmt.Errorf("read %v: %w", from, err), done()))
	}
	return in, done()
}

func lossesOf(in *recording.Reader) uint64 {
	sum := in.End.Sum()
	return sum.Lost + sum.Limited + sum.Missed
}

// sayRecording says what the numbers lack.
func sayRecording(m *messages, in *recording.Reader, r *report.Report) {
	sum := in.End.Sum()
	text := plural.Of(int(r.Hits), "hit", "hits") + " in " + report.Time(r.Last-r.First)
	if sum.Filtered > 0 {
		text += fmt.Sprintf(", %d filtered out", sum.Filtered)
	}
	text += fmt.Sprintf(", %d lost", sum.Lost)
	if sum.Lost > 0 {
		text += fmt.Sprintf(" (%.1f %% of all: calls and times are of the others)", 100*float64(sum.Lost)/float64(sum.Lost+r.Hits))
	}
	if in.End != nil && in.End.Overwritten > 0 {
		text += fmt.Sprintf("; %d older ones were overwritten before", in.End.Overwritten)
	}
	if sum.Limited > 0 {
		text += fmt.Sprintf(", %d beyond --limit", sum.Limited)
	}
	if sum.Missed > 0 {
		text += fmt.Sprintf(", %d calls missed", sum.Missed)
	}
	if n := r.Tracks.Lates; n > 0 {
		text += fmt.Sprintf("; of %d calls the entry is missing", n)
	}
	if n := r.Tracks.Cut; n > 0 {
		text += fmt.Sprintf("; %d calls may lack their callers: record with --calls to follow so many", n)
	}
	m.say("%s", text)
}
