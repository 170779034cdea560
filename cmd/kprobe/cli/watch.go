package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"kprobe/output"
	"kprobe/probe"
)

// defaultInterval is how often a live table is drawn.
const defaultInterval = time.Second

// watcher shows counters while they count: as a table that is drawn again and
// again on a terminal, or block after block, or not at all before the end.
type watcher struct {
	o      *profileOptions
	w      *output.Writer
	size   func() (width, height int)
	screen *output.Screen // nil: no live table
	target string

	start  time.Time
	first  []probe.Stats // at the start; nil: nothing was counted by then
	before []probe.Stats // at the last interval
	at     time.Time     // of before
	rates  []output.Rate // of the last interval
}

// newWatcher makes the watcher of a profile. A command that writes to the same
// terminal gets a live table only if --interval asks for one: they would
// overwrite each other.
func newWatcher(d *Deps, o *profileOptions, w *output.Writer) *watcher {
	v := &watcher{o: o, w: w, size: d.Size, target: o.target(), screen: o.screen(d)}
	v.begin()
	return v
}

// sameCounts reports whether a line of the one is a line of the other.
func sameCounts(a, b probe.Stats) bool {
	return a.Event.Name == b.Event.Name && a.Event.Group == b.Event.Group && a.Place == b.Place && a.Module == b.Module && a.Hits == b.Hits && a.Missed == b.Missed
}

// target names what is probed.
func (o *sessionOptions) target() string {
	if o.wait {
		return "processes of " + cmp.Or(o.name, o.defs.exec)
	}
	if len(o.pids) > 0 {
		if len(o.pids) > 1 {
			return "processes " + o.pids.String()
		}
		return "process " + o.pids.String()
	}
	return strings.Join(o.command, " ")
}

// screen is where a live table is drawn; nil: nowhere, as on a terminal that
// can't move its cursor (TERM=dumb, of an editor's window).
func (o *profileOptions) screen(d *Deps) *output.Screen {
	terminal := d.Terminal && d.getenv("TERM") != "dumb" && o.outputFile == "" && o.form == output.Text && d.Size != nil
	if terminal && (len(o.command) == 0 || o.interval > 0) {
		return &output.Screen{W: d.Link.Output(d.Out)}
	}
	return nil
}

// begin starts the clock.
func (v *watcher) begin() {
	v.start = time.Now()
	v.at = v.start
}

// shows reports whether anything is shown before the end.
func (v *watcher) shows() bool { return v.screen != nil || v.o.interval > 0 }

// watch shows the counters until stop is called. An output that fails is not
// written to again; whoever watches its reader ends the trace.
func (v *watcher) watch(stats func() []probe.Stats) (stop func()) {
	v.begin()
	if !v.shows() {
		return func() {}
	}
	return beside(func(ctx context.Context) error {
		return v.loop(ctx, func() ([]probe.Stats, error) { return stats(), nil })
	})
}

// loop shows the counters until ctx is done, or reading or showing them fails.
func (v *watcher) loop(ctx context.Context, stats func() ([]probe.Stats, error)) error {
	if v.screen != nil {
		now, err := stats()
		if err != nil {
			return err
		}
		now = v.reached(now)
		v.before = now
		if err := v.draw(output.Rates(now, now, 1)); err != nil {
			return err
		}
	}
	return again(ctx, v.o.interval, v.screen != nil, func() error { return v.draw(v.rates) }, func() error {
		now, err := stats()
		if err != nil {
			return err
		}
		return v.show(now)
	})
}

// again calls show after each interval, 0 is the default, and on a screen redraw when its size
// has changed, until ctx is done or one fails.
func again(ctx context.Context, interval time.Duration, screen bool, redraw, show func() error) error {
	resized := make(chan os.Signal, 1)
	if screen {
		signal.Notify(resized, syscall.SIGWINCH)
		defer signal.Stop(resized)
	}
	if interval == 0 {
		interval = defaultInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-resized:
			err = redraw()
		case <-tick.C:
			err = show()
		}
		if err != nil {
			return err
		}
	}
}

// beside calls loop until stop is called.
func beside(loop func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// What fails here is said by the writer when it is closed.
		_ = loop(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// show shows the counters of a moment.
func (v *watcher) show(now []probe.Stats) error {
	at := time.Now()
	now = v.reached(now)
	v.rates = output.Rates(now, v.before, at.Sub(v.at).Seconds())
	v.before, v.at = now, at
	seconds := at.Sub(v.start).Seconds()
	switch {
	case v.screen != nil:
		return v.draw(v.rates)
	case v.o.form == output.JSON:
		_, err := v.w.Write(output.AppendRatesJSON(nil, v.rates, seconds))
		return err
	}
	_, err := v.w.Write(output.AppendProfile(output.AppendMoment(nil, seconds), v.summed(now)))
	return err
}

// reached leaves places out that were not reached.
func (v *watcher) reached(stats []probe.Stats) []probe.Stats {
	if !v.o.each {
		return stats
	}
	return output.Reached(stats)
}

// summed adds the line of --total.
func (v *watcher) summed(stats []probe.Stats) []probe.Stats {
	if !v.o.total {
		return stats
	}
	return append(stats[:len(stats):len(stats)], output.Total(stats))
}

// what is what n lines are of.
func (v *watcher) what(n int) string {
	switch {
	case v.o.each && n == 1:
		return "place reached"
	case v.o.each:
		return "places reached"
	case n == 1:
		return "event"
	}
	return "events"
}

// draw draws the live table.
func (v *watcher) draw(rates []output.Rate) error {
	v.rates = rates
	sum := 0.0
	for i := range rates {
		sum += rates[i].PerSecond
	}
	table := output.LiveTable{
		Title: fmt.Sprintf("%s, %.0f s, %d %s, %.0f hits/s", v.target, time.Since(v.start).Seconds(), len(rates), v.what(len(rates)), sum),
		Rates: rates, Total: v.o.total, Each: v.o.each,
	}
	width, height := v.size()
	lines, err := table.Lines(width, height)
	if err != nil {
		return err
	}
	return v.screen.Draw(lines, width, height)
}

// end shows the counters for the last time.
func (v *watcher) end(stats []probe.Stats, terminal bool) error {
	stats = v.reached(stats)
	switch {
	case v.screen != nil:
		// Rates over the whole time: it is the result now.
		return v.draw(output.Rates(stats, v.first, time.Since(v.start).Seconds()))
	case v.o.form == output.JSON:
		_, err := v.w.Write(output.AppendProfileJSON(nil, stats))
		return err
	case terminal:
		return output.ProfileTable(v.w, v.summed(stats))
	case v.o.interval > 0:
		if time.Since(v.at) < v.o.interval/4 && slices.EqualFunc(stats, v.before, sameCounts) {
			return nil // that was shown a moment ago
		}
		_, err := v.w.Write(output.AppendMoment(nil, time.Since(v.start).Seconds()))
		if err != nil {
			return err
		}
	}
	_, err := v.w.Write(output.AppendProfile(nil, v.summed(stats)))
	return err
}
