package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
	"kprobe/internal/plural"
	"kprobe/output"
	"kprobe/output/recording"
	"kprobe/probe"
)

// Recorder is what the commands need of a probe.Recorder.
type Recorder interface {
	// Snapshot gives a sink the last snapshot that a trigger took, or what Live does.
	Snapshot(ctx context.Context, since time.Duration, sink probe.Sink) error
	// Live gives it what the rings hold since.
	Live(ctx context.Context, since time.Duration, sink probe.Sink) error
	// Follow gives it what comes, too.
	Follow(ctx context.Context, sink probe.Sink) error
	// Held tells of the probes and of what isn't there any more.
	Held() (probe.Held, error)
	Close() error
}

type snapshotOptions struct {
	pids     pidList
	file     string
	patterns []kept.Pattern
	form     output.Form
	output   string
	time     string
	duration time.Duration
	live     bool
	quiet    bool
}

type snapshotRun func(context.Context, *Deps, *messages, *snapshotOptions) error

const snapshotLong = `Prints the last hits of detached probes (kprobe trace --detach), oldest first.
The process runs on and keeps what is printed: the next snapshot shows it again
unless newer hits have overwritten it.

-p PID :: a process with detached probes
FILE :: a file of trace --detach --keep FILE; it has the hits up to the end of the process, by
whatever signal it ended
CORE :: a core dump of a process with detached probes, unpacked; bit 1 of the process's
/proc/PID/coredump_filter must be set, as it is by default. What --keep puts into a FILE is there
and not in the dump, unless bit 3 is set.

FILE says which files were mapped, so another machine that has these files can
read it. GLOBs choose events by name. -t 10s prints the hits of the last ten
seconds. -o FILE.kprobe writes a recording, for kprobe report and kprobe graph.
-o with any other name writes what would be printed.

Hits of events that were deleted since (kprobe del) are shown too, as long as
the process has the buffers. A file of --keep has them when all events are gone.

Standard error says at the end how many hits were overwritten before. Hits that
are overwritten while kprobe copies them are left out, and counted there too.

# SNAPSHOTS BY TRIGGERS
If a trigger (see kprobe help events) has taken a snapshot, its hits are
printed: from the previous snapshot up to the hit that took this one. -t counts
back from that hit. The snapshot stays until the next one is taken. --live
prints the hits since; kprobe trace -p PID prints these and the hits to come.`

const snapshotExample = `  kprobe trace -p 4711 --detach 'libc:malloc size=$arg1:u64'
  kprobe snapshot -p 4711 -t 10s
  kprobe trace -p 4711 --detach --keep /dev/shm/web.ring 'p:req handle_request'
  kprobe snapshot /dev/shm/web.ring -t 1s
  kprobe trace -p 4711 --detach --trigger 'late:snapshot' 'p:late on_timeout'
  kprobe snapshot -p 4711 -o last.kprobe 'kprobes/*' && kprobe report last.kprobe`

func newSnapshotCmd(d *Deps, m *messages, run snapshotRun) *cobra.Command {
	o := &snapshotOptions{}
	c := &cobra.Command{
		Use:     "snapshot [flags] -p PID|FILE|CORE [GLOB…]",
		Short:   "print the last hits of detached probes",
		Long:    snapshotLong,
		Example: snapshotExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(o.pids) == 0 {
				if len(args) == 0 {
					return misuse("name the process, -p PID, or a file: that of --keep, or a core dump")
				}
				o.file, args = args[0], args[1:]
			}
			var err error
			if o.patterns, err = patterns(args); err != nil {
				return err
			}
			if c.Flags().Changed("duration") && o.duration <= 0 {
				return misuse("-t %v: give a time, such as 10s", o.duration)
			}
			if len(o.pids) > 1 && o.output != "" && o.output != "-" {
				return misuse("-o FILE is for one process: -p PID") // each would replace the file of the one before
			}
			if _, err := output.NewClock(o.time, 0, time.Time{}); err != nil {
				return err
			}
			return run(c.Context(), d, m, o)
		},
	}
	f := c.Flags()
	f.VarP(&o.pids, "pid", "p", "a process with detached probes (repeat, or give a comma list)")
	f.StringVarP(&o.output, "output", "o", "", "write to `FILE`; a recording if it ends with .kprobe")
	addFormat(f, &o.form)
	f.DurationVarP(&o.duration, "duration", "t", 0, "print only the hits of the last `TIME`, such as 10s")
	timeFlag(c, &o.time)
	f.BoolVar(&o.live, "live", false, "print what was recorded since a trigger took a snapshot")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no summary")
	f.SortFlags = false
	_ = c.RegisterFlagCompletionFunc("pid", completePIDs(d))
	return c
}

func runSnapshot(ctx context.Context, d *Deps, m *messages, o *snapshotOptions) error {
	if o.file != "" {
		r, err := d.blackBox(m, o.file)
		if errors.Is(err, probe.ErrNoRings) && isRecording(o.file) {
			return fail(fmt.Errorf("%s: a recording, not a ring; kprobe report and kprobe graph read it", o.file))
		}
		if err != nil {
			return fail(ofFile(o.file, err))
		}
		return fail(o.snapshot(ctx, d, m, r))
	}
	for _, pid := range o.pids {
		if err := o.process(ctx, d, m, pid); err != nil {
			return fail(err)
		}
	}
	return nil
}

// ofFile is an error with the file's name before it, once.
func ofFile(name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && path.Path == name {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// blackBox opens a kept memory file or a core dump.
func (d *Deps) blackBox(m *messages, name string) (Recorder, error) {
	r, missing, err := d.Engine.BlackBox(name)
	if err != nil {
		return nil, err
	}
	for i, name := range missing {
		if i == mostMissing {
			m.warn("%s", plural.Of(len(missing)-i, "more file is not what it was", "more files are not what they were"))
			break
		}
		m.warn("%s is not here, or is not what it was when it was mapped: its code is named as far as it was probed", name)
	}
	return r, nil
}

// recorder opens the rings that were left in a process.
func (d *Deps) recorder(pid int) (Recorder, error) {
	r, err := d.Engine.Recorder(pid)
	if errors.Is(err, fs.ErrNotExist) {
		err = &probe.NoProcessError{PID: pid}
	}
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	return r, nil
}

func (o *snapshotOptions) process(ctx context.Context, d *Deps, m *messages, pid int) error {
	r, err := d.recorder(pid)
	if err != nil {
		return err
	}
	if err := o.snapshot(ctx, d, m, r); err != nil {
		return ofProcess(pid, err)
	}
	return nil
}

// mostMissing is how many files are named that are missing.
const mostMissing = 4

func (o *snapshotOptions) snapshot(ctx context.Context, d *Deps, m *messages, r Recorder) error {
	defer r.Close()
	held, err := r.Held()
	if err != nil {
		return err
	}
	if err := o.known(&held); err != nil {
		return err
	}
	n, err := o.write(ctx, d, r, &held)
	if err != nil {
		return err
	}
	if held, err = r.Held(); err == nil && !o.quiet {
		if line := held.SnapshotLine(); line != "" && !o.live {
			m.say("%s", line)
		}
		m.say("%s", held.Line(n))
		for _, line := range held.Lacks() {
			m.say("%s", line)
		}
	}
	return nil
}

// write writes what a recorder holds.
func (o *snapshotOptions) write(ctx context.Context, d *Deps, r Recorder, held *probe.Held) (uint64, error) {
	if strings.HasSuffix(o.output, recordingSuffix) {
		return o.record(ctx, d, r, held)
	}
	mono, wall := d.Now()
	clock, err := output.NewClock(o.time, mono, wall)
	if err != nil {
		return 0, err
	}
	var to io.Writer = d.Link.Output(d.Out)
	done := func() error { return nil }
	if o.output != "" && o.output != "-" {
		f, err := os.Create(o.output)
		if err != nil {
			return 0, fmt.Errorf("output: %w", err)
		}
		to, done = f, f.Close
	}
	w := output.NewWriter(to)
	sink := &output.Trace{Writer: w, Format: output.Formatter{Form: o.form, Clock: clock}, Workers: runtime.GOMAXPROCS(0)}
	err = o.read(ctx, r, o.only(sink))
	err = both(err, printed(sink))
	if o.form == output.JSON {
		err = both(err, closeJSON(w, sink.Printed(), held.Stats, err))
	}
	err = both(err, both(w.Close(), done()))
	if errors.Is(err, output.ErrClosed) {
		err = nil
	}
	return sink.Printed(), err
}

// read gives a sink the hits that were asked for.
func (o *snapshotOptions) read(ctx context.Context, r Recorder, sink probe.Sink) error {
	if o.live {
		return r.Live(ctx, o.duration, sink)
	}
	return r.Snapshot(ctx, o.duration, sink)
}

// recordingSuffix is that of recordings.
const recordingSuffix = ".kprobe"

// record keeps what a recorder holds in a recording.
func (o *snapshotOptions) record(ctx context.Context, d *Deps, r Recorder, held *probe.Held) (uint64, error) {
	rec, err := recording.Create(o.output, heldHeader(held), false)
	if err != nil {
		return 0, fmt.Errorf("recording: %w", err)
	}
	err = o.read(ctx, r, o.only(rec))
	err = both(err, endHeld(rec, r))
	return rec.Hits(), err
}

// heldHeader begins a recording of what a recorder holds.
func heldHeader(held *probe.Held) *recording.Header {
	return &recording.Header{
		Kprobe: Version, PIDs: []int{held.PID}, Command: held.Command, Host: held.Host, Boot: held.Boot,
		Mono: held.Mono, Wall: held.Wall, Definitions: held.Definitions, Paired: held.Paired,
	}
}

// endHeld ends a recording of what a recorder holds.
func endHeld(rec *recording.Recorder, r Recorder) error {
	held, err := r.Held()
	return both(err, rec.CloseAfter(held.Stats, held.Before+held.Since))
}

// known refuses patterns that match no event of the probes.
func (o *snapshotOptions) known(held *probe.Held) error {
	deleted := func(p kept.Pattern) bool {
		return slices.ContainsFunc(held.Deleted, func(name string) bool {
			group, event, _ := strings.Cut(name, "/")
			return p.Match(group, event)
		})
	}
	for _, p := range o.patterns {
		if !slices.ContainsFunc(held.Stats, func(s probe.Stats) bool { return p.Match(s.Event.Group, s.Event.Name) }) && !deleted(p) {
			return fmt.Errorf("no event matches %s; the events are: %s", p, eventNames(held.Stats))
		}
	}
	return nil
}

// mostNamed is how many events a message lists.
const mostNamed = 16

// eventNames lists events, each once.
func eventNames(stats []probe.Stats) string {
	var names []string
	for _, s := range stats {
		if name := s.Event.Group + "/" + s.Event.Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := len(names) - mostNamed; n > 0 {
		names = append(names[:mostNamed], fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}

// only lets the hits of the events that were asked for through.
func (o *snapshotOptions) only(sink probe.Sink) probe.Sink {
	if len(o.patterns) == 0 {
		return sink
	}
	return &onlyEvents{sink, anyOf(o.patterns)}
}

type onlyEvents struct {
	probe.Sink
	match func(group, event string) bool
}

// Hit implements probe.Sink.
func (e *onlyEvents) Hit(h *probe.Hit) error {
	if !e.match(h.Event.Group, h.Event.Name) {
		return nil
	}
	return e.Sink.Hit(h)
}
