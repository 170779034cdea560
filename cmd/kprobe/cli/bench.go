package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/bench"
	"kprobe/output"
)

type benchOptions struct {
	threads []int
	each    time.Duration
	all     bool
	form    output.Form
}

const benchLong = `Measures on this machine what each kind of probe costs per hit: breakpoint (b),
jump (o), return probe (rb, ro), both on one function (krb, kro), beside the
kernel's uprobes where they may be used, and beside detours written by hand for
one place only: the floor, below which none can come that does the same.

Times are in nanoseconds, the median of several runs, with the probe less
without. What is probed is a small program that kprobe writes itself and pins to
CPUs; RATIO is the time by the floor's. Close what else runs, or figures are
high.`

const benchExample = `  kprobe bench
  kprobe bench --threads 1,2,4
  kprobe bench --json | jq 'select(.kind == "o")'`

type benchRun func(ctx context.Context, d *Deps, m *messages, o *benchOptions) error

func newBenchCmd(d *Deps, m *messages, run benchRun) *cobra.Command {
	o := &benchOptions{}
	c := &cobra.Command{
		Use:     "bench",
		Short:   "measure what probes cost on this machine",
		Long:    benchLong,
		Example: benchExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("bench takes no arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), d, m, o) },
	}
	c.Flags().IntSliceVar(&o.threads, "threads", []int{1}, "so many threads hit at once: a comma list, a column each")
	c.Flags().DurationVarP(&o.each, "duration", "t", bench.DefaultEach, "measure each row so long, for each number of threads")
	c.Flags().BoolVar(&o.all, "all", false, "also lines a second, times to arm and disarm, and memory")
	addFormat(c.Flags(), &o.form)
	return c
}

func runBench(ctx context.Context, d *Deps, m *messages, o *benchOptions) error {
	ctx, stop := signal.NotifyContext(ctx, ending()...)
	defer stop()
	rep, err := bench.Run(ctx, bench.Options{Threads: o.threads, Each: o.each, All: o.all})
	if err != nil && ctx.Err() != nil {
		return fail(errors.New("bench: interrupted"))
	}
	if err != nil {
		return fail(fmt.Errorf("bench: %w", err))
	}
	for _, why := range rep.Skipped {
		m.say("left out: %s", why)
	}
	w := output.NewWriter(d.Out)
	if o.form == output.JSON {
		var text []byte
		if text, err = benchJSON(rep); err == nil {
			_, err = w.Write(text)
		}
	} else {
		err = benchTable(rep).Render(w)
	}
	return closed(w, err)
}

// benchTable has a column of times for each number of threads.
func benchTable(rep *bench.Report) *output.Table {
	t := &output.Table{Columns: []output.Column{{Name: "KIND"}, {Name: "WHAT"}}}
	for _, n := range rep.Threads {
		name := "NS"
		if len(rep.Threads) > 1 || n > 1 {
			name = fmt.Sprintf("NS, %d THREADS", n)
			if n == 1 {
				name = "NS, 1 THREAD"
			}
		}
		t.Columns = append(t.Columns, output.Column{Name: name, Align: output.Right})
	}
	t.Columns = append(t.Columns, output.Column{Name: "FLOOR", Align: output.Right}, output.Column{Name: "RATIO", Align: output.Right})
	for i := range rep.Rows {
		r := &rep.Rows[i]
		what := r.What
		if r.Lost > 0 {
			what += fmt.Sprintf(" (%.1f %% lost)", 100*r.Lost)
		}
		row := []string{r.Kind, what}
		for k := range rep.Threads {
			if k < len(r.NS) {
				row = append(row, nanoseconds(r.NS[k]))
			} else {
				row = append(row, "")
			}
		}
		floor, ratio := "", ""
		if r.Floor > 0 {
			floor, ratio = nanoseconds(r.Floor), strconv.FormatFloat(r.Ratio(), 'f', 2, 64)
			if r.Ratio() >= 100 {
				ratio = strconv.FormatFloat(r.Ratio(), 'f', 0, 64)
			}
		}
		t.Rows = append(t.Rows, append(row, floor, ratio))
	}
	return t
}

// nanoseconds has a decimal where it says something.
func nanoseconds(ns float64) string {
	if ns >= 100 {
		return strconv.FormatFloat(ns, 'f', 0, 64)
	}
	return strconv.FormatFloat(ns, 'f', 1, 64)
}

// benchLine is a figure as JSON: one kind with one number of threads.
type benchLine struct {
	Type    string  `json:"type"`
	Kind    string  `json:"kind"`
	What    string  `json:"what"`
	Threads int     `json:"threads"`
	NS      float64 `json:"ns"`
	BareNS  float64 `json:"bare_ns"`
	FloorNS float64 `json:"floor_ns,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Lost    float64 `json:"lost,omitempty"`
}

func benchJSON(rep *bench.Report) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range rep.Rows {
		r := &rep.Rows[i]
		for k, ns := range r.NS {
			line := benchLine{
				Type: "bench", Kind: r.Kind, What: r.What, Threads: rep.Threads[k],
				NS: ns, BareNS: r.Bare, FloorNS: r.Floor, Lost: r.Lost,
			}
			if r.Floor > 0 {
				line.Ratio = ns / r.Floor
			}
			if err := enc.Encode(line); err != nil {
				return nil, fmt.Errorf("print a figure: %w", err)
			}
		}
	}
	return []byte(b.String()), nil
}
