package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/output/html"
	"kprobe/probe"
)

// parseHists checks --hist and what goes with it.
func (o *traceOptions) parseHists(c *cobra.Command) error {
	for _, text := range o.hists {
		spec, err := output.ParseHist(text)
		if err != nil {
			return err
		}
		o.specs = append(o.specs, spec)
	}
	if len(o.specs) == 0 && (o.lines || c.Flags().Changed("interval")) {
		return misuse("--lines and --interval go with --hist")
	}
	if len(o.specs) == 0 && o.page.name != "" {
		return misuse("--html goes with --hist; kprobe record keeps hits, and kprobe report --html draws them")
	}
	if err := o.page.apart(o.outputFile); err != nil {
		return err
	}
	return o.checkInterval(c)
}

// countRing is the size of a ring, in bytes, if hits are counted and not printed and --ring
// isn't given: they may come in bursts of some 100,000.
const countRing = 16 << 20

// runHist counts hits by their values; lines prints them too where that is
// asked for.
func runHist(ctx context.Context, d *Deps, m *messages, o *traceOptions, w *output.Writer, file *os.File, done func() error, lines *output.Trace) error {
	sink := &output.Histograms{Specs: o.specs, Limit: o.events}
	if o.lines {
		sink.Next = lines
	}
	start := time.Now()
	show := func(stats []probe.Stats, last bool) error {
		var text []byte
		if last {
			sink.Counted(o.binsAtEnd)
		} else if o.bins != nil {
			sink.Counted(o.bins())
		}
		switch {
		case o.form == output.JSON && last:
			text = sink.AppendJSON(nil, stats, -1)
		case o.form == output.JSON:
			text = sink.AppendJSON(nil, stats, time.Since(start).Seconds())
		default:
			if o.interval > 0 {
				text = output.AppendMoment(nil, time.Since(start).Seconds())
			}
			text = sink.AppendText(text, stats)
		}
		_, err := w.Write(text)
		return err
	}
	o.watch = func(stats func() []probe.Stats) func() {
		start = time.Now()
		if o.interval == 0 {
			return func() {}
		}
		return beside(func(ctx context.Context) error {
			return again(ctx, o.interval, false, nil, func() error { return show(stats(), false) })
		})
	}
	o.adapt = func(defs []*fetch.Def) ([]*fetch.Def, error) {
		o.page.begin(d, defs)
		return o.checkHists(defs)
	}
	p := o.engine(d, m)
	if p.RingSize == 0 && !slices.ContainsFunc(o.specs, (*output.HistSpec).Stack) {
		p.RingSize = countRing
	}
	p.Bin = sink.Bin
	sum, err := o.run(ctx, d, m, p, file, sink)
	if err = both(err, printed(lines)); hasRun(err) {
		if serr := fail(show(sum.Stats, true)); !errors.Is(serr, output.ErrClosed) { // else the reader has seen enough
			err = both(err, serr)
		}
	}
	if hasRun(err) {
		err = both(err, o.page.write(d, "Histograms of "+o.target(), sum.Stats, func(page *html.Counts) { page.Tables = sink.Tables(sum.Stats) }))
	}
	return o.conclude(d, m, w, done, output.Sum(sum.Stats).Recorded, sum, err)
}

// checkHists says which values of histograms no definition has.
func (o *traceOptions) checkHists(defs []*fetch.Def) ([]*fetch.Def, error) {
	var names []string
	for _, d := range defs {
		for _, a := range d.Args {
			if a.Expr.Op != fetch.ExprAllArgs && !slices.Contains(names, a.Name) {
				names = append(names, a.Name)
			}
		}
	}
	for i, spec := range o.specs {
		if slices.ContainsFunc(defs, spec.For) {
			continue
		}
		known := "no definition fetches a value"
		if len(names) > 0 {
			known = "the values are " + strings.Join(names, ", ")
		}
		missing := spec.Args()
		if left := slices.DeleteFunc(slices.Clone(missing), func(n string) bool { return slices.Contains(names, n) }); len(left) > 0 {
			missing = left
		} else if spec.Stack() {
			missing, known = []string{"common_stacktrace"}, "end a definition with stack=N to record N frames"
		} else if name := cmp.Or(spec.Where(false), spec.Where(true)); len(missing) == 0 && name != "" {
			missing, known = []string{name}, "__probe_ip is where a probe is; __probe_func and __probe_ret_ip are of return probes"
		} else {
			known = "no one definition has all of them"
		}
		return nil, fail(fmt.Errorf("histogram %s: %w; %s", o.hists[i], &output.HistError{Text: "Couldn't find field", About: strings.Join(missing, ", ")}, known))
	}
	return defs, nil
}
