package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/output"
	"kprobe/output/recording"
	"kprobe/probe"
	"kprobe/symbols"
)

type recordOptions struct {
	sessionOptions
	calls bool
	args  bool
	// results says that results are recorded, whether arguments are or not.
	results bool
	pack    bool
}

type recordRun func(context.Context, *Deps, *messages, *recordOptions) error

const recordLong = `Puts probes into a process, as kprobe trace does, and writes their hits to a
file. kprobe report and kprobe graph read it, on this machine or another. The
file holds events, values with their types, names of places, stacks, threads,
the mapped files with their build-ids, clocks, and what was lost.

Return probes record the time of the call too, so reports know how long calls
took. --calls records every function that a definition names at its entry and at
its return. kprobe graph needs that to show calls that have not returned.

# SPEED AND SIZE
Hits are written as they lie in the program's ring: 16 bytes and the fetched
values. Two CPUs record ten million and more a second. --compress makes the file
a tenth of that size, at the cost of another CPU at such rates. Some hits are
decoded before they are written, at a million a second: those with stacks, those
with values that are names of symbols, and all hits with -n.

# DURABILITY
The file is written at least once a second, in blocks with checksums. After a
crash it can be read up to where it was cut off. A full disk ends the recording,
and the program runs on. Only its owner can read the file: arguments may be
secrets.`

const recordExample = `  kprobe record -o web.kprobe -t 10s -p 4711 --calls 'handle_*'
  kprobe record -o alloc.kprobe 'r libc:malloc size=$arg1:u64' -- ls -lR /usr
  kprobe report web.kprobe`

func newRecordCmd(d *Deps, m *messages, run recordRun) *cobra.Command {
	o := &recordOptions{}
	c := &cobra.Command{
		Use:     "record [flags] [DEF…|EVENT…] -o FILE [-p PID… | -- CMD ARG…]",
		Short:   "record hits in a file, for report and graph",
		Long:    recordLong,
		Example: recordExample,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.arguments(c, d, args); err != nil {
				return err
			}
			if o.outputFile == "" || o.outputFile == "-" {
				return misuse("name the file to record to: -o FILE.kprobe")
			}
			if o.args && !o.calls {
				return misuse("--args goes with --calls")
			}
			return run(c.Context(), d, m, o)
		},
	}
	o.register(c, d)
	// There is one form of recordings; the flag fails only if it does not exist.
	_ = c.Flags().MarkHidden("format")
	_ = c.Flags().MarkHidden("json")
	c.Flags().Lookup("output").Usage = "record to `FILE`"
	c.Flags().Uint64VarP(&o.events, "events", "n", 0, "end after `N` hits")
	o.addCalls(c)
	o.addControl(c.Flags())
	c.Flags().BoolVar(&o.pack, "compress", false, "compress the file, at the cost of CPU time")
	return c
}

func (o *recordOptions) addCalls(c *cobra.Command) {
	c.Flags().BoolVar(&o.calls, "calls", false, "record functions at entry and return")
	c.Flags().BoolVar(&o.args, "args", false, "with --calls: record results, and with debug information arguments")
}

func runRecord(ctx context.Context, d *Deps, m *messages, o *recordOptions) error {
	o.adapt = o.timed
	sink := &recordSink{}
	o.watch = func(stats func() []probe.Stats) func() {
		// A command writes to the same terminal.
		show := d.Watched && !o.quiet && len(o.command) == 0
		stop := beside(func(ctx context.Context) error {
			return again(ctx, lossInterval, false, nil, func() error {
				if show {
					m.show(fmt.Sprintf("kprobe: recording: %s hits, %s, %s lost", grouped(int(sink.rec.Hits())), size(sink.rec.Size()), grouped(int(output.Sum(stats()).Lost))))
				}
				return sink.flush()
			})
		})
		return func() { stop(); m.show("") }
	}
	adapt := o.adapt
	o.adapt = func(defs []*fetch.Def) ([]*fetch.Def, error) {
		defs, err := adapt(defs)
		if err != nil {
			return nil, err
		}
		// Before anything is armed: a file that can't be written is known of at once.
		if sink.rec, err = recording.Create(o.outputFile, o.header(d, defs), o.pack); err != nil {
			return nil, fail(fmt.Errorf("recording: %w", err))
		}
		sink.rec.Limit = o.events
		return defs, nil
	}
	sum, err := o.run(ctx, d, m, o.timing(d, m), nil, sink)
	if sink.rec == nil {
		return err
	}
	if err != nil && !sink.rec.Begun() { // what is in the file stays there
		return both(err, sink.rec.Abandon())
	}
	if cerr := sink.rec.Close(sum.Stats); cerr != nil && err == nil {
		err = fail(cerr)
	}
	if err != nil {
		return err
	}
	hits := sink.rec.Hits()
	if !o.quiet || output.Sum(sum.Stats).Lost > 0 {
		m.say("%s: %s; %s", o.outputFile, size(sink.rec.Size()), o.endLine(hits, &sum))
	}
	if !o.quiet {
		o.sayRest(d, m, &sum)
	}
	return outcome(sum)
}

// recordSink is the sink of a recording that begins when the definitions are known.
type recordSink struct{ rec *recording.Recorder }

// Hit implements probe.Sink.
func (l *recordSink) Hit(h *probe.Hit) error { return l.rec.Hit(h) }

// Keep implements probe.Keeper.
func (l *recordSink) Keep(src probe.RecordSource) probe.RecordKeeper { return l.rec.Keep(src) }

func (l *recordSink) flush() error { return l.rec.Flush() }

// timing gives the engine's options for calls that are followed.
func (o *recordOptions) timing(d *Deps, m *messages) probe.Options {
	p := o.engine(d, m)
	if p.RingSize == 0 {
		p.RingSize = countRing
	}
	return p
}

func (o *recordOptions) header(d *Deps, defs []*fetch.Def) *recording.Header {
	h := &recording.Header{Kprobe: Version, Command: o.command, PIDs: o.pids, Calls: o.calls}
	if len(h.Command) == 0 && len(o.pids) == 1 {
		h.Command = procfs.Process(o.pids[0]).Command()
	}
	var wall time.Time
	h.Mono, wall = d.Now()
	h.Wall = wall.UnixNano()
	// Without them the recording is as good.
	h.Host, _ = os.Hostname()
	h.Boot = procfs.BootID()
	for _, def := range defs[:min(len(defs), 1000)] {
		h.Definitions = append(h.Definitions, def.Text)
	}
	return h
}

// timed gives the definitions with which calls are recorded with their times.
func (o *recordOptions) timed(defs []*fetch.Def) ([]*fetch.Def, error) {
	if o.calls {
		defs = o.onceEach(defs)
	}
	out := make([]*fetch.Def, 0, len(defs))
	for _, def := range defs {
		var err error
		switch {
		case o.calls && isCall(def):
			out, err = o.both(out, def)
		case def.Kind == fetch.Return:
			var r *fetch.Def
			if r, err = o.like(def, fetch.Return, recording.EntryArg); err == nil {
				out = append(out, r)
			}
		default:
			out = append(out, def)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// onceEach has patterns leave out the functions that another definition names, or a
// pattern before them: a function's calls are seen once.
func (o *sessionOptions) onceEach(defs []*fetch.Def) []*fetch.Def {
	var named, patterns []symbols.Place
	for _, def := range defs {
		if isCall(def) && !def.Place.IsGlob() {
			named = append(named, def.Place)
		}
	}
	out := slices.Clone(defs)
	for i, def := range defs {
		if !isCall(def) || !def.Place.IsGlob() {
			continue
		}
		less := *def
		less.Except = slices.Concat(named, patterns)
		out[i] = &less
		o.become(def, out[i])
		patterns = append(patterns, def.Place)
	}
	return out
}

// become has a definition wait for its library if the one that it is made of does.
func (o *sessionOptions) become(from, def *fetch.Def) {
	if o.waits[from] {
		o.waits[def] = true
	}
}

// isCall reports whether a definition is about a function, and not a place in one.
func isCall(def *fetch.Def) bool {
	return def.Kind != fetch.Entry || def.Place.Kind == symbols.PlaceSymbol && def.Place.Offset == 0
}

// both appends the definitions of a function's entry and return.
func (o *recordOptions) both(out []*fetch.Def, def *fetch.Def) ([]*fetch.Def, error) {
	result := ""
	if o.args || o.results {
		result = "ret=$retval "
	}
	if def.Kind == fetch.Return {
		if def.Filter == nil { // else there would be entries without a return
			p, err := o.like(def, fetch.Entry, recording.StackArg)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
		r, err := o.like(def, fetch.Return, recording.EntryArg)
		return append(out, r), err
	}
	stack := recording.StackArg
	if o.args && def.Kind == fetch.Entry && len(def.Args) == 0 {
		stack = "$arg* " + stack
	}
	p, err := o.like(def, def.Kind, stack)
	if err != nil {
		return nil, err
	}
	optional(p, "arg1")
	r, err := o.like(def, fetch.Return, result+recording.EntryArg)
	if err == nil {
		optional(r, "ret")
	}
	return append(out, p, r), err
}

// optional has an argument that this command added left out where it can't be had.
func optional(def *fetch.Def, name string) {
	for i, a := range def.Args {
		if a.Name == name && (a.Expr.Op == fetch.ExprRetval || a.Expr.Op == fetch.ExprAllArgs) {
			lenient := *a
			lenient.Optional = true
			def.Args[i] = &lenient
		}
	}
}

// like is a definition of the same function's entry or return, with more arguments
// at its end.
func (o *recordOptions) like(def *fetch.Def, kind fetch.Kind, args string) (*fetch.Def, error) {
	letter := "p"
	if kind == fetch.Return {
		letter = "r"
	}
	more, err := fetch.Parse(letter + ":kprobe/more f " + args)
	if err != nil {
		return nil, fmt.Errorf("the times of a call: %w", err)
	}
	out := *def
	out.Kind, out.Place.Return, out.Called = kind, kind == fetch.Return, kind != fetch.Return
	switch {
	case kind == def.Kind:
	case kind == fetch.Return && def.Filter == nil:
		out.Args, out.Filter = nil, nil
	case kind == fetch.Entry:
		out.Args = nil
	}
	if kind != def.Kind {
		out.Event = otherEvent(def, letter)
	}
	out.Args = append(out.Args[:len(out.Args):len(out.Args)], more.Args...)
	o.become(def, &out)
	return &out, nil
}

// otherEvent names the event of a function's other end.
func otherEvent(def *fetch.Def, letter string) string {
	if !def.Named && len(def.Event) > 2 && def.Event[1] == '_' {
		return letter + def.Event[1:]
	}
	end := map[string]string{"p": "_entry", "r": "_return"}[letter]
	return def.Event[:min(len(def.Event), fetch.MaxName-len(end))] + end
}

// size is a number of bytes for a person.
func size(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%d MB", n>>20)
}
