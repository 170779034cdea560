package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/output"
	calltree "kprobe/output/calls"
	"kprobe/output/graph"
	"kprobe/output/recording"
	"kprobe/probe"
	"kprobe/symbols/glob"
)

type graphOptions struct {
	recordOptions
	below  string
	not    []string
	depth  int
	slower time.Duration
	failed string // a filter; anyFailure; "" is not asked for
	when   *fetch.Condition
	auto   bool
	now    bool
	from   hitsFile
	only   []string // patterns of the functions that are shown of it; nil: all
}

// failing reports whether only trees are shown whose root failed.
func (o *graphOptions) failing() bool { return o.failed != "" }

// anyFailure is the value of --failed without a filter.
const anyFailure = "any"

// failedFilter parses --failed's filter. It may be an argument of its own: none of those
// that name something begins with a $.
func (o *graphOptions) failedFilter(args []string) ([]string, error) {
	if o.failed == anyFailure {
		if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "$") }); i >= 0 {
			o.failed, args = args[i], slices.Delete(slices.Clone(args), i, i+1)
		}
	}
	if o.failed == "" || o.failed == anyFailure {
		return args, nil
	}
	var err error
	if o.when, err = fetch.ParseCondition(o.failed, graph.Result); err != nil {
		return nil, misuse("--failed %q: %v", o.failed, err)
	}
	return args, nil
}

type graphRun func(context.Context, *Deps, *messages, *graphOptions) error

func newGraphCmd(d *Deps, m *messages, run graphRun) *cobra.Command {
	o := &graphOptions{}
	c := &cobra.Command{
		Use:     "graph [flags] DEF… -p PID… | DEF… -- CMD ARG… | [GLOB…] FILE|CORE | --now -p PID…",
		Short:   "show calls as a tree, with how long each took",
		Long:    graphLong,
		Example: graphExample,
		RunE: func(c *cobra.Command, args []string) error {
			own := args // those that are no command
			if at := c.ArgsLenAtDash(); at >= 0 {
				own = args[:at]
			}
			own, err := o.failedFilter(own)
			if err != nil {
				return err
			}
			switch {
			case c.Flags().Changed("slower") && o.slower <= 0:
				return misuse("--slower %v: give a time above 0", o.slower)
			case o.depth < 0 || c.Flags().Changed("depth") && o.depth == 0:
				return misuse("--depth %d: give a number above 0", o.depth)
			case c.Flags().Changed("events") && o.events == 0:
				return misuse("-n 0: give a number above 0; without -n all trees are shown")
			case o.now:
				if err := o.checkNow(own); err != nil {
					return err
				}
				return run(c.Context(), d, m, o)
			case len(own) > 0 && len(o.pids) == 0 && o.name == "" && c.ArgsLenAtDash() < 0:
				o.from.name, o.only = own[len(own)-1], own[:len(own)-1]
				if _, err := os.Stat(o.from.name); err != nil && len(own) > 1 {
					if _, err := os.Stat(own[0]); err == nil { // the other way round
						o.from.name, o.only = own[0], own[1:]
					}
				}
				return run(c.Context(), d, m, o)
			case len(own) == 0 && len(o.pids) == 1 && d.records(o.pids[0]):
				o.from.pid = o.pids[0]
				return run(c.Context(), d, m, o)
			}
			if err := o.arguments(c, d, args); err != nil {
				return err
			}
			o.defs.args = own
			return run(c.Context(), d, m, o)
		},
	}
	o.register(c, d)
	// There is one form; the flag fails only if it does not exist.
	_ = c.Flags().MarkHidden("format")
	_ = c.Flags().MarkHidden("json")
	f := c.Flags()
	f.StringVar(&o.below, "below", "", "show only what `FUNC` calls: a name or a pattern")
	f.StringArrayVar(&o.not, "not", nil, "leave out functions that match `GLOB`, and what they call")
	f.IntVar(&o.depth, "depth", 0, "show at most `N` levels of calls")
	f.Uint64VarP(&o.events, "events", "n", 0, "end after `N` trees")
	f.DurationVar(&o.slower, "slower", 0, "show only trees whose root took `TIME` or longer, such as 10ms")
	f.StringVar(&o.failed, "failed", "", "show only trees whose root failed, or matches `FILTER`, such as '$retval < 0'")
	f.Lookup("failed").NoOptDefVal = anyFailure
	f.BoolVar(&o.auto, "auto", false, "leave out functions that make up most of the hits")
	f.BoolVar(&o.now, "now", false, "show what every thread is inside of now, and for how long")
	f.BoolVar(&o.args, "args", false, "show results, and with debug information arguments")
	return c
}

// drawing is the sink of a graph.
type drawing struct {
	mu   sync.Mutex
	conv recording.Converter
	calltree.Tracker
	print graph.Printer
	notes graph.Notes
	only  []string        // patterns of functions; nil: all
	is    map[string]bool // whether one fits a name
}

func (o *graphOptions) drawing(w io.Writer) *drawing {
	g := &drawing{print: graph.Printer{W: w, Below: o.below, Not: o.not, Depth: o.depth, Slower: uint64(o.slower), Failed: o.failing(), Limit: o.events, LeftFails: o.when == nil}}
	g.notes.Failed = o.when
	g.Tracker.Sink, g.Tracker.Note = &g.print, g.notes.Note
	g.print.Now = g.Tracker.Now
	return g
}

// liveCalls is the sink of hits as they arrive, until the trace is told to end: calls for which
// some probes were already removed would nest wrongly.
type liveCalls struct {
	*drawing
	over *endTime
}

// Hit implements probe.Sink.
func (l liveCalls) Hit(h *probe.Hit) error {
	if l.over.before(h.Time) {
		return nil
	}
	hit, err := l.conv.Convert(h)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hit(hit)
}

// hit takes a hit of a function that isn't left out. mu is held.
func (g *drawing) hit(h *recording.Hit) error {
	if g.print.LeftOut[h.Place.Name] || len(g.only) > 0 && !g.chosenOf(h.Place.Name) {
		return nil
	}
	return g.Tracker.Hit(h)
}

// finish shows calls that have not returned, of as many trees as are wanted.
func (g *drawing) finish() error {
	if err := g.Finish(); !errors.Is(err, probe.ErrStop) {
		return err
	}
	return nil
}

// chosenOf reports whether a pattern fits a function's name.
func (g *drawing) chosenOf(name string) bool {
	fits, known := g.is[name]
	if !known {
		fits = slices.ContainsFunc(g.only, func(p string) bool { return glob.Match(p, name, "!") })
		if g.is == nil || len(g.is) >= maxNames {
			g.is = map[string]bool{}
		}
		g.is[name] = fits
	}
	return fits
}

// maxNames bounds the names that are remembered.
const maxNames = 1 << 16

// flush shows calls that go on.
func (g *drawing) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.print.Flush()
}

func runGraph(ctx context.Context, d *Deps, m *messages, o *graphOptions) error {
	if o.now {
		return o.runNow(ctx, d, m)
	}
	if o.from != (hitsFile{}) {
		return o.fromFile(ctx, d, m)
	}
	w, file, done, err := o.open(d)
	if err != nil {
		return err
	}
	if d.Terminal && o.outputFile == "" {
		if _, err := w.Write([]byte(graph.Header)); err != nil {
			return fail(err)
		}
	}
	o.calls, o.results = true, o.failing()
	o.adapt = o.timed
	o.over = &endTime{}
	g := o.drawing(w)
	o.watch = func(func() []probe.Stats) func() {
		stop := beside(func(ctx context.Context) error {
			return again(ctx, lossInterval, false, nil, g.flush)
		})
		if !o.auto {
			return stop
		}
		auto := beside(func(ctx context.Context) error {
			b := &busiest{}
			return again(ctx, autoInterval, false, nil, func() error { g.leaveOut(m, b.live(o.places()), o.disablePlaces); return nil })
		})
		return func() { auto(); stop() }
	}
	sum, err := o.run(ctx, d, m, o.timing(d, m), file, liveCalls{g, o.over})
	if err == nil {
		err = g.finish()
	}
	if werr := done(); err == nil {
		err = werr
	}
	if err != nil && !errors.Is(err, output.ErrClosed) {
		return fail(err)
	}
	lost := output.Sum(sum.Stats).Lost
	if !o.quiet || lost > 0 {
		m.say("%s%s", g.chosen(), o.endLine(g.Hits, &sum))
	}
	o.sayUnbound(g, m)
	if !o.quiet {
		o.sayRest(d, m, &sum)
	}
	return outcome(sum)
}

// sayUnbound says that nothing that was seen has what --failed asks for.
func (o *graphOptions) sayUnbound(g *drawing, m *messages) {
	if g.notes.Unbound != nil {
		m.warn("--failed %q: no function that returned has what it asks for: %v", o.failed, g.notes.Unbound)
	}
}

// chosen says how many trees were shown.
func (g *drawing) chosen() string {
	p := &g.print
	if p.Slower == 0 && !p.Failed {
		return ""
	}
	text := fmt.Sprintf("%d of %d trees; ", p.Shown, p.Roots)
	if p.Cut > 0 {
		text += fmt.Sprintf("%d of their lines are left out; ", p.Cut)
	}
	return text
}

// fromFile shows the calls of a recording, or of what a recorder holds.
func (o *graphOptions) fromFile(ctx context.Context, d *Deps, m *messages) error {
	from := o.from
	from.again = o.auto
	in, closed, err := d.openHits(ctx, m, from)
	if errors.Is(err, os.ErrNotExist) {
		return misuse("name a target: -p PID for a process that runs, -- CMD ARG… for one to start, or a recording; there is no file %v", o.from)
	}
	if err != nil {
		return err
	}
	// A reader that has gone is no reason to be killed.
	signal.Ignore(unix.SIGPIPE)
	w, _, done, err := o.open(d)
	if err != nil {
		return err
	}
	g := o.drawing(w)
	g.Pair(in.Header.Paired)
	g.only = o.only
	if o.auto {
		if err := o.autoFromFile(ctx, d, g, m); err != nil {
			return fail(errors.Join(err, done(), closed()))
		}
	}
	stop := func() {}
	if !d.Terminal || o.outputFile != "" { // else it would be among the calls
		stop = d.reading(m, o.from, in)
	}
	defer stop()
	var damaged *recording.DamagedError
	for {
		h, rerr := in.Next()
		if err = rerr; err == nil {
			err = g.hit(h)
		}
		if err != nil {
			break
		}
	}
	if errors.As(err, &damaged) {
		m.warn("%v: %v; what comes before is shown", o.from, err)
		err = io.EOF
	}
	if err == io.EOF || errors.Is(err, probe.ErrStop) {
		err = g.finish()
	}
	stop()
	if err = errors.Join(err, done(), closed()); err != nil && !errors.Is(err, output.ErrClosed) {
		return fail(err)
	}
	o.sayUnbound(g, m)
	over := ""
	if in.End != nil && in.End.Overwritten > 0 {
		over = fmt.Sprintf("; %d older ones were overwritten before", in.End.Overwritten)
	}
	m.say("%s%d hits, %d lost%s", g.chosen(), g.Hits, lossesOf(in), over)
	if n := g.Lates; n > 0 {
		m.say("of %d calls the entry is missing", n)
	}
	if g.Calls == 0 && len(g.only) == 0 {
		m.say("no call is among the hits: kprobe record --calls records when calls begin and end")
	}
	return nil
}
