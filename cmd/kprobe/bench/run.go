package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"kprobe/probe/tracee"
)

// Options say what to measure. The zero value is every kind of probe with one
// thread.
type Options struct {
	Threads []int // how many threads hit at once; each at most 64
	// Each is how long a row is measured for each number of threads, about; 0
	// is DefaultEach.
	Each time.Duration
	// All has the report say too what probes cost a program that hits none, and what
	// kprobe takes for its work: Report.Costs and Report.Work.
	All bool
}

// DefaultEach is how long a row is measured where nothing is said.
const DefaultEach = 400 * time.Millisecond

// Run measures. Everything is measured in one process after the other, on the
// CPUs that this one may use, pinned. Nothing is left behind; a kind that can't
// be measured here is in the report's Skipped.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Threads) == 0 {
		o.Threads = []int{1}
	}
	for _, n := range o.Threads {
		if n < 1 || n > maxThreads {
			return nil, fmt.Errorf("%d threads: at least 1 and at most %d can be measured", n, maxThreads)
		}
	}
	if o.Each <= 0 {
		o.Each = DefaultEach
	}
	top, err := os.MkdirTemp("", "kprobe-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the program to measure: %w", err)
	}
	defer func() { _ = os.RemoveAll(top) }()
	p, err := start(top, slices.Max(o.Threads), 0)
	if err != nil {
		return nil, err
	}
	defer p.end()
	m := &meter{p: p, o: o, dir: top, report: &Report{Threads: o.Threads}, kernel: map[string]float64{}}
	dir, err := os.MkdirTemp(top, "hand-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the program to measure: %w", err)
	}
	if m.hand, err = start(dir, slices.Max(o.Threads), 0); err != nil {
		return nil, err
	}
	defer m.hand.end()
	end, err := tracee.BareStops(m.hand.cmd.Process.Pid, m.hand.function(floorStep.name()))
	if err != nil {
		return nil, fmt.Errorf("trace a program by hand: %w", err)
	}
	if err = m.floors(); err == nil {
		err = m.all(ctx)
	}
	if eerr := end(); err == nil {
		err = eerr
	}
	if err != nil {
		return nil, err
	}
	return m.report, nil
}

// all measures everything. The kernel's probes come before those that are
// compared with them, and are reported after.
func (m *meter) all(ctx context.Context) error {
	if !rdpid() {
		m.skip("the floor of jumps with locked instructions: the processor has no rdpid")
	}
	others, err := m.others(ctx)
	if err != nil {
		return err
	}
	own := m.report
	for _, k := range kinds() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.kind(ctx, &k); err != nil {
			return fmt.Errorf("measure %s (%s): %w", k.name, k.what, err)
		}
	}
	if err := m.goRows(ctx); err != nil {
		return err
	}
	if m.o.All {
		if err := m.costs(ctx); err != nil {
			return fmt.Errorf("measure what probes cost a program: %w", err)
		}
		if err := m.work(ctx); err != nil {
			return err
		}
	}
	own.Rows = append(own.Rows, others.Rows...)
	own.Skipped = append(own.Skipped, others.Skipped...)
	return ctx.Err()
}

// others measures the kernel's probes and other tools, in a process of its own: one that has had a
// uprobe keeps what the kernel has mapped for it.
func (m *meter) others(ctx context.Context) (*Report, error) {
	dir, err := os.MkdirTemp(m.dir, "kernel-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the program to measure: %w", err)
	}
	p, err := start(dir, slices.Max(m.o.Threads), 0)
	if err != nil {
		return nil, err
	}
	defer p.end()
	own, report := m.p, m.report
	m.p, m.report = p, &Report{Threads: report.Threads}
	defer func() { m.p, m.report = own, report }()
	for _, k := range uprobes() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.uprobe(&k); err != nil {
			m.skip(fmt.Sprintf("%s: %v", k.what, err))
		}
	}
	for _, k := range peers() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.peer(ctx, &k); err != nil {
			m.skip(fmt.Sprintf("%s: %v", k.what, err))
		}
	}
	if err := m.uftrace(ctx); err != nil {
		m.skip(fmt.Sprintf("%s: %v", uftraceWhat, err))
	}
	return m.report, nil
}

// goRows measures probes in a Go program, in one thread.
func (m *meter) goRows(ctx context.Context) error {
	p, err := startGo(m.p.cpus[0])
	if err != nil {
		return err
	}
	defer p.end()
	for _, k := range goKinds() {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := Row{Kind: k.name, What: k.what}
		between, out, err := arm(ctx, p.cmd.Process.Pid, k.defs, k.opts, &row)()
		if err != nil {
			return fmt.Errorf("measure %s (%s): %w", k.name, k.what, err)
		}
		work, bare := uint64(goWorkFn), uint64(goBareFn)
		if k.fn != "" {
			work, bare = goOuterFn, goBareOuterFn
		}
		err = m.lanes(&row, []int{1}, lane{in: p, fn: work, between: between}, lane{in: p, fn: bare}, k.floor)
		if oerr := out(); err == nil {
			err = oerr
		}
		if err != nil {
			return fmt.Errorf("measure %s (%s): %w", k.name, k.what, err)
		}
		m.report.Rows = append(m.report.Rows, row)
	}
	return nil
}
