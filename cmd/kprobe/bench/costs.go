package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"kprobe/internal/procfs"
	"kprobe/probe"
)

// costs measures what a signal, a task and a system call cost a program without probes, and
// with some in each way. Nobody hits the probes meanwhile: the cost is that of their being
// there, and of a tracer's.
func (m *meter) costs(ctx context.Context) (err error) {
	const def = "p:cost work" + fetched
	puts := [Withs]func(p *process) armed{
		WithText:       func(p *process) armed { return rewrite(p) },
		WithLeft:       func(p *process) armed { return leave(ctx, p.pid, []string{def}) },
		WithTrace:      func(p *process) armed { return armIdle(ctx, p.pid, def, probe.Options{}) },
		WithBreakpoint: func(p *process) armed { return armIdle(ctx, p.pid, def, probe.Options{NoOptimize: true}) },
	}
	bare, err := m.tasked()
	if err != nil {
		return err
	}
	defer bare.end()
	lanes := []lane{{in: bare, threads: 1}}
	for _, put := range puts {
		p, err := m.tasked()
		if err != nil {
			return err
		}
		defer p.end()
		_, out, err := put(p)()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out()) }()
		lanes = append(lanes, lane{in: p, threads: 1})
	}
	for k := range taskKinds {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range lanes {
			lanes[i].fn = bare.function(k.name())
		}
		times, err := m.runs(lanes...)
		if err != nil {
			return fmt.Errorf("%s: %w", k.what(), err)
		}
		m.report.Costs = append(m.report.Costs, costOf(k.what(), times))
	}
	return nil
}

// rewrite has the page of a function's code be the process's own, as it is once somebody has
// written to it. What is written is what is there.
func rewrite(p *process) armed {
	return func() (between, out func() error, err error) {
		at := int64(p.function("work"))
		f, err := os.OpenFile(procfs.Process(p.pid).Path("mem"), os.O_RDWR, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("open the memory of the program to measure: %w", err)
		}
		defer f.Close()
		var b [1]byte
		if _, err = f.ReadAt(b[:], at); err == nil {
			_, err = f.WriteAt(b[:], at)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("write the code of the program to measure: %w", err)
		}
		return nil, func() error { return nil }, nil
	}
}

// costOf makes a row of the times of runs in turns, of which the first are without probes.
func costOf(what string, times [][]float64) Cost {
	c := Cost{What: what}
	for i := range c.With {
		var ratios []float64
		for n, ns := range times[1+i] {
			ratios = append(ratios, ns/times[0][n])
		}
		c.With[i] = Dearer{NS: median(times[1+i]), Ratio: median(ratios)}
	}
	c.NS = median(times[0])
	return c
}

// tasked starts a subject whose signals are handled.
func (m *meter) tasked() (*process, error) {
	dir, err := os.MkdirTemp(m.dir, "tasks-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the program to measure: %w", err)
	}
	p, err := start(dir, 1, 0)
	if err != nil {
		return nil, err
	}
	if _, err := p.call(1, p.function(taskHandler), 1); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}
