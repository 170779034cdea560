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
	program bool
	form    output.Form
}

const benchLong = `Measures on this machine what each kind of probe costs per hit, in nanoseconds.

KIND :: breakpoint (b), jump (o), detached jump (ol), jprobe (j, jb), return probe (rb, ro),
both on one function (krb, kro, jr), and the same in a Go program
NS :: the cost of a hit; one column for each number of --threads
FLOOR, RATIO :: the same written by hand for that one place, and NS divided by it: a detour for
jumps, the least that a tracer can do by ptrace for breakpoints
RSEQ, RATIO :: the same by hand without a locked instruction, in restartable sequences; programs
with glibc 2.35 or later take their hits so
KERNEL :: how many times as much the kernel's uprobe at the same instruction costs

The probed program is a small one that kprobe writes itself and pins to CPUs;
for Go it is kprobe. A time is the median of many runs with the probe, less that
of as many without. The floor is measured in between, so RATIO holds on a busy
machine too. Each number of --threads is measured in turns with the others.

The kernel's uprobes are measured where the tracing files may be used. bpftrace,
perf, gdb and uftrace are measured where they are installed (KIND peer). What
they recorded is compared with the calls that were made: the rest is lost. Row k
is the least for a breakpoint that single-steps its instruction, as other
tracers do. kprobe's breakpoints never single-step.

# MORE FIGURES
--all adds two tables. The first says what a signal, a thread, a child and a
system call cost a program that hits no probe. Each RATIO is by NS of a run
beside it.

NS :: without probes
TEXT :: without probes, but with a page of code that was written to, as by any patch
LEFT :: with a detached probe
TRACED :: with a jump of a trace
BREAKPOINT :: with a breakpoint of a trace

The second says what kprobe's own work costs: lines that CPUs write, the time
for a recorded hit, the time to arm and take out 1, 1,000 and 10,000 probes, how
long the program is stopped meanwhile, and the memory used in it.

# PROGRAMS
--program measures only real programs, of those that are installed: redis-server
(by redis-benchmark), python3, node and sqlite3. All entries are counted, then
all returns, in turns with no probes. It takes a minute or two, most of it for
node.

CPU, RATE :: what remains of their work per second of CPU time, and per second
HITS, NS :: hits of an operation, and its CPU time without probes
PLACES, TRAPS :: probed places, and how many of them are breakpoints
ARMED, STOP :: how long it took to put the probes in, and the longest time that the program was
stopped
MB :: memory that the probes use in the program`

const benchExample = `  kprobe bench
  kprobe bench --threads 1,2,4
  kprobe bench --all
  kprobe bench --program
  kprobe bench --json | jq 'select(.kind == "o")'`

type benchRun func(ctx context.Context, d *Deps, m *messages, o *benchOptions) error

func newBenchCmd(d *Deps, m *messages, run benchRun) *cobra.Command {
	o := &benchOptions{}
	c := &cobra.Command{
		Use:     "bench",
		Short:   "measure what probes cost on this machine",
		Long:    benchLong,
		Example: benchExample,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("bench takes no arguments")
			}
			if o.program && (o.all || c.Flags().Changed("threads")) {
				return misuse("--program measures programs only: --all and --threads are for the other figures")
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), d, m, o) },
	}
	c.Flags().IntSliceVar(&o.threads, "threads", []int{1}, "`N[,N…]`: measure with N threads, a column each")
	c.Flags().DurationVarP(&o.each, "duration", "t", bench.DefaultEach, "measure each row for `TIME`")
	c.Flags().BoolVar(&o.all, "all", false, "also measure what probes cost besides hits, and how fast lines are written")
	c.Flags().BoolVar(&o.program, "program", false, "measure only what probes on all functions cost real programs")
	addFormat(c.Flags(), &o.form)
	return c
}

func runBench(ctx context.Context, d *Deps, m *messages, o *benchOptions) error {
	ctx, stop := signal.NotifyContext(ctx, ending()...)
	defer stop()
	measure := bench.Run
	if o.program {
		measure = bench.RunPrograms
	}
	rep, err := measure(ctx, bench.Options{Threads: o.threads, Each: o.each, All: o.all})
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
	} else if o.program {
		err = programTable(rep).Render(w)
	} else {
		err = benchTable(rep).Render(w)
		if err == nil && len(rep.Costs) > 0 {
			_, err = w.Write([]byte("\n"))
			err = errors.Join(err, costTable(rep).Render(w))
		}
		if err == nil && len(rep.Work) > 0 {
			_, err = w.Write([]byte("\n"))
			err = errors.Join(err, workTable(rep).Render(w))
		}
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
	t.Columns = append(t.Columns, output.Column{Name: "FLOOR", Align: output.Right}, output.Column{Name: "RATIO", Align: output.Right},
		output.Column{Name: "RSEQ", Align: output.Right}, output.Column{Name: "RATIO", Align: output.Right}, output.Column{Name: "KERNEL", Align: output.Right})
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
		floor, sequence, kernel := "", "", ""
		if r.Sequence > 0 {
			sequence = nanoseconds(r.Sequence)
		}
		if r.Floor > 0 {
			floor = nanoseconds(r.Floor)
		}
		if r.Kernel > 0 {
			kernel = times(r.Cheaper()) + " x"
		}
		t.Rows = append(t.Rows, append(row, floor, times(r.Ratio()), sequence, times(r.SequenceRatio()), kernel))
	}
	return t
}

// costTable has a line for each thing that a program does.
func costTable(rep *bench.Report) *output.Table {
	right := func(name string) output.Column { return output.Column{Name: name, Align: output.Right} }
	t := &output.Table{Columns: []output.Column{
		{Name: "COST OF"}, right("NS"), right("TEXT"), right("RATIO"), right("LEFT"), right("RATIO"), right("TRACED"), right("RATIO"), right("BREAKPOINT"), right("RATIO"),
	}}
	for i := range rep.Costs {
		c := &rep.Costs[i]
		row := []string{c.What, nanoseconds(c.NS)}
		for _, with := range c.With {
			row = append(row, nanoseconds(with.NS), times(with.Ratio))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// workTable has a line for each figure of kprobe's own work.
func workTable(rep *bench.Report) *output.Table {
	t := &output.Table{Columns: []output.Column{{Name: "WORK"}, {Name: "VALUE", Align: output.Right}, {Name: "UNIT"}}}
	for _, f := range rep.Work {
		value := strconv.FormatFloat(f.Value, 'f', 3, 64)
		if f.Value >= 100 {
			value = strconv.FormatFloat(f.Value, 'f', 0, 64)
		}
		t.Rows = append(t.Rows, []string{f.What, value, f.Unit})
	}
	return t
}

// programTable has a line for each work of a program, with each kind of probes.
func programTable(rep *bench.Report) *output.Table {
	right := func(name string) output.Column { return output.Column{Name: name, Align: output.Right} }
	t := &output.Table{Columns: []output.Column{
		{Name: "PROGRAM"}, {Name: "WORK"}, {Name: "PROBES"}, right("CPU"), right("RATE"), right("HITS"), right("NS"),
		right("PLACES"), right("TRAPS"), right("ARMED"), right("STOP"), right("MB"),
	}}
	share := func(v float64) string { return strconv.FormatFloat(100*v, 'f', 0, 64) + " %" }
	for i := range rep.Programs {
		p := &rep.Programs[i]
		t.Rows = append(t.Rows, []string{
			p.Name, p.Work, p.Probes, share(p.CPU), share(p.Throughput), nanoseconds(p.Hits), nanoseconds(p.NS),
			strconv.Itoa(p.Places), strconv.Itoa(p.Trapped), p.Armed.Round(10 * time.Millisecond).String(),
			p.Longest.Round(10 * time.Microsecond).String(), strconv.FormatFloat(float64(p.Memory)/1e6, 'f', 1, 64),
		})
	}
	return t
}

// times is a ratio; "" where there is none.
func times(v float64) string {
	switch {
	case v <= 0:
		return ""
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
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
	// RseqNS is the floor in restartable sequences, and RseqRatio the time by that.
	RseqNS    float64 `json:"rseq_ns,omitempty"`
	RseqRatio float64 `json:"rseq_ratio,omitempty"`
	// KernelNS is what the kernel's probe costs in one thread.
	KernelNS float64 `json:"kernel_ns,omitempty"`
	Lost     float64 `json:"lost,omitempty"`
}

// costLine is a cost as JSON.
type costLine struct {
	Type            string  `json:"type"`
	What            string  `json:"what"`
	NS              float64 `json:"ns"` // without probes
	TextNS          float64 `json:"text_ns"`
	TextRatio       float64 `json:"text_ratio"`
	LeftNS          float64 `json:"left_ns"`
	LeftRatio       float64 `json:"left_ratio"`
	TracedNS        float64 `json:"traced_ns"`
	TracedRatio     float64 `json:"traced_ratio"`
	BreakpointNS    float64 `json:"breakpoint_ns"`
	BreakpointRatio float64 `json:"breakpoint_ratio"`
}

// workLine is a figure of kprobe's own work as JSON.
type workLine struct {
	Type  string  `json:"type"`
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// programLine is a program with probes of all its functions as JSON.
type programLine struct {
	Type       string  `json:"type"`
	Program    string  `json:"program"`
	Work       string  `json:"work"`
	Probes     string  `json:"probes"`
	CPU        float64 `json:"cpu"` // what is left, of 1
	Rate       float64 `json:"rate"`
	Hits       float64 `json:"hits"`
	NS         float64 `json:"ns"` // without probes
	Places     int     `json:"places"`
	Traps      int     `json:"traps"`
	ArmedMS    float64 `json:"armed_ms"`
	StopMS     float64 `json:"stop_ms"`
	MemoryByte int     `json:"memory_bytes"`
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
				NS: ns, BareNS: r.Bare, FloorNS: r.Floor, KernelNS: r.Kernel, Lost: r.Lost,
			}
			if r.Floor > 0 {
				line.Ratio = ns / r.Floor
			}
			if r.Sequence > 0 {
				line.RseqNS, line.RseqRatio = r.Sequence, ns/r.Sequence
			}
			if err := enc.Encode(line); err != nil {
				return nil, fmt.Errorf("print a figure: %w", err)
			}
		}
	}
	for i := range rep.Costs {
		c := &rep.Costs[i]
		text, left, traced, trap := c.With[bench.WithText], c.With[bench.WithLeft], c.With[bench.WithTrace], c.With[bench.WithBreakpoint]
		line := costLine{"cost", c.What, c.NS, text.NS, text.Ratio, left.NS, left.Ratio, traced.NS, traced.Ratio, trap.NS, trap.Ratio}
		if err := enc.Encode(line); err != nil {
			return nil, fmt.Errorf("print a figure: %w", err)
		}
	}
	for i := range rep.Programs {
		p := &rep.Programs[i]
		line := programLine{"program", p.Name, p.Work, p.Probes, p.CPU, p.Throughput, p.Hits, p.NS, p.Places, p.Trapped,
			float64(p.Armed.Microseconds()) / 1e3, float64(p.Longest.Microseconds()) / 1e3, p.Memory}
		if err := enc.Encode(line); err != nil {
			return nil, fmt.Errorf("print a figure: %w", err)
		}
	}
	for _, f := range rep.Work {
		if err := enc.Encode(workLine{"work", f.What, f.Value, f.Unit}); err != nil {
			return nil, fmt.Errorf("print a figure: %w", err)
		}
	}
	return []byte(b.String()), nil
}
