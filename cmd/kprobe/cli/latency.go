package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/output/html"
	"kprobe/probe"
)

// runLatency shows how long functions' calls take.
func runLatency(ctx context.Context, d *Deps, m *messages, o *profileOptions, x *exporter) error {
	if err := o.page.create(); err != nil {
		return err
	}
	w, file, done, err := o.open(d)
	if err != nil {
		return err
	}
	sink := &output.Latency{}
	v := &latencyView{o: o, w: w, size: d.Size, screen: o.screen(d), sink: sink, start: time.Now()}
	o.watch = v.watch
	x.watch(o)
	o.adapt = func(defs []*fetch.Def) (_ []*fetch.Def, err error) {
		o.page.begin(d, defs)
		defs = o.onceEach(defs)
		for i := 0; i < len(defs) && err == nil; i++ {
			def := defs[i]
			if defs[i], err = returning(def, output.Took); err == nil {
				o.become(def, defs[i])
			}
		}
		return defs, err
	}
	p := o.engine(d, m)
	if p.RingSize == 0 {
		p.RingSize = countRing
	}
	p.Bin = sink.Bin
	to := x.times(d, o, &p, sink)
	sum, err := o.run(ctx, d, m, p, file, to)
	if n := len(v.trapped); n > 0 {
		names := strings.Join(v.trapped[:min(n, 5)], ", ")
		if n > 5 {
			names += fmt.Sprintf(" and %d more", n-5)
		}
		m.warn("breakpoints follow %s: the times hold kprobe's own stops, some 10 µs for a call and for each inside it", names)
	}
	if step := probe.TimeStep(); err == nil && step > 1 && !o.quiet {
		m.say("times are in steps of %d ns, as the processor's clock goes: a call that takes less reads as 0 or %d ns", step, step)
	}
	if hasRun(err) {
		err = both(err, v.end(sum.Stats, d.Terminal && o.outputFile == ""))
	}
	if hasRun(err) {
		err = both(err, o.page.write(d, "How long calls took: "+o.target(), sum.Stats, func(page *html.Counts) {
			if len(v.trapped) > 0 {
				page.Notes = append(page.Notes, "The times hold kprobe's own stops, as breakpoints follow "+strings.Join(v.trapped, ", ")+".")
			}
			page.Times = timesOf(sink, sum.Stats)
		}))
	}
	return o.conclude(d, m, w, done, sum, err)
}

// errNoFunction is misuse.
var errNoFunction = errors.New("--latency takes functions and return probes")

// returning makes a definition one of a return probe whose record ends with
// a value of the time: of the entry, or that the call took.
func returning(def *fetch.Def, entry string) (*fetch.Def, error) {
	if def.Kind == fetch.Jprobe || def.Kind == fetch.Entry && (def.Place.Offset != 0 || len(def.Args) > 0) {
		return nil, fmt.Errorf("%w, not %s", errNoFunction, def.Text)
	}
	timed, err := fetch.Parse("r:kprobe/latency f " + entry)
	if err != nil {
		return nil, fmt.Errorf("the time of a call: %w", err)
	}
	out := *def
	out.Kind, out.Place.Return = fetch.Return, true
	if rest, ok := strings.CutPrefix(out.Event, "p_"); ok && !out.Named {
		out.Event = "r_" + rest
	}
	out.Args = append(out.Args[:len(out.Args):len(out.Args)], timed.Args...)
	return &out, nil
}

// latencyView shows latencies while calls return, as watcher shows counters.
type latencyView struct {
	o      *profileOptions
	w      *output.Writer
	size   func() (width, height int)
	screen *output.Screen // nil: no live table
	sink   *output.Latency
	start  time.Time
	stats  []probe.Stats // at the last look while probes were in
	// trapped are the events with breakpoints at the end.
	trapped []string
}

// watch shows them until stop is called.
func (v *latencyView) watch(stats func() []probe.Stats) (stop func()) {
	v.start = time.Now()
	shown := v.showing(stats)
	return func() {
		shown()
		for _, s := range stats() {
			if s.Trapped > 0 && s.Hits > 0 {
				v.trapped = append(v.trapped, s.Event.Group+"/"+s.Event.Name)
			}
		}
	}
}

// showing shows them again and again, where that is asked for.
func (v *latencyView) showing(stats func() []probe.Stats) (stop func()) {
	if v.screen == nil && v.o.interval == 0 {
		return func() {}
	}
	show := func() error { return v.show(stats()) }
	return beside(func(ctx context.Context) error {
		if v.screen != nil {
			if err := show(); err != nil {
				return err
			}
		}
		return again(ctx, v.o.interval, v.screen != nil, show, show)
	})
}

func (v *latencyView) seconds() float64 { return time.Since(v.start).Seconds() }

func (v *latencyView) show(stats []probe.Stats) error {
	v.stats = stats
	if output.Sum(stats).Lost > 0 && v.o.places != nil {
		v.sink.Lose(v.o.places())
	}
	if v.o.bins != nil {
		v.sink.Counted(v.o.bins())
	}
	calls := v.sink.Calls(stats, v.o.total)
	switch {
	case v.screen != nil:
		return v.draw(calls)
	case v.o.form == output.JSON:
		_, err := v.w.Write(output.AppendCallsJSON(nil, calls, v.seconds()))
		return err
	}
	_, err := v.w.Write(output.AppendCalls(output.AppendMoment(nil, v.seconds()), calls))
	return err
}

func (v *latencyView) draw(calls []output.Calls) error {
	title := ""
	for _, s := range v.stats {
		if s.Trapped > 0 {
			title = "; the times hold kprobe's breakpoints"
		}
	}
	n := uint64(0)
	for i := range calls {
		if calls[i].Event != "" {
			n += calls[i].Count
		}
	}
	table := output.LatencyTable{
		Title: fmt.Sprintf("%s, %.0f s, %d calls%s", v.o.target(), v.seconds(), n, title),
		Calls: calls,
	}
	width, height := v.size()
	lines, err := table.Lines(width, height)
	if err != nil {
		return err
	}
	return v.screen.Draw(lines, width, height)
}

// end shows them for the last time.
func (v *latencyView) end(stats []probe.Stats, terminal bool) error {
	v.sink.Lose(v.o.atEnd)
	v.sink.Counted(v.o.binsAtEnd)
	calls := v.sink.Calls(stats, v.o.total)
	var text []byte
	switch {
	case v.screen != nil:
		return v.draw(calls)
	case v.o.form == output.JSON:
		text = output.AppendCallsJSON(nil, calls, -1)
	case terminal:
		width := 80
		if v.size != nil {
			width, _ = v.size()
		}
		lines, err := (&output.LatencyTable{Calls: calls}).All(width)
		if err != nil {
			return err
		}
		text = []byte(strings.Join(lines, "\n") + "\n")
	default:
		if v.o.interval > 0 {
			text = output.AppendMoment(text, v.seconds())
		}
		text = output.AppendCalls(text, calls)
		for i := range calls {
			text = output.AppendSteps(text, &calls[i])
		}
	}
	_, err := v.w.Write(text)
	return err
}
