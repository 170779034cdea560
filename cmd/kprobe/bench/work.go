package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/probe"
)

// work measures what kprobe does besides hits.
func (m *meter) work(ctx context.Context) error {
	for _, f := range []output.Form{output.Text, output.JSON} {
		if err := m.lines(ctx, f); err != nil {
			return fmt.Errorf("measure how fast lines are written: %w", err)
		}
	}
	if err := m.arming(ctx); err != nil {
		return fmt.Errorf("measure how fast probes are armed: %w", err)
	}
	if err := m.cycles(ctx); err != nil {
		return fmt.Errorf("measure how fast a probe comes and goes: %w", err)
	}
	return nil
}

func (m *meter) figure(value float64, unit, what string, args ...any) {
	m.report.Work = append(m.report.Work, Work{fmt.Sprintf(what, args...), value, unit})
}

// lines measures how many lines a core prints: the time is the processor's, of
// all that is done for a record from the ring to the file, which is
// /dev/null.
func (m *meter) lines(ctx context.Context, form output.Form) error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	w := output.NewWriter(null)
	clock, err := output.NewClock("mono", 0, time.Time{})
	if err != nil {
		return err
	}
	trace := &output.Trace{Writer: w, Format: output.Formatter{Form: form, Clock: clock}}
	var row Row
	between, out, err := armFor(ctx, m.p.cmd.Process.Pid, []string{"p:line work" + fetched}, probe.Options{}, &row, trace)()
	if err != nil {
		return err
	}
	before, err := processor()
	for start := time.Now(); err == nil && time.Since(start) < m.o.Each; {
		if _, err = m.p.call(1, m.p.function("work"), most); err == nil {
			err = between()
		}
	}
	after, perr := processor()
	err = errors.Join(err, perr, out(), w.Close())
	if err != nil {
		return err
	}
	name := map[output.Form]string{output.Text: "lines of text", output.JSON: "lines of JSON"}[form]
	m.figure(float64(trace.Printed())/(after-before).Seconds(), "1/s", "%s that a core writes, 2 arguments", name)
	return nil
}

// processor is how much time of processors this process has taken.
func processor() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read how much time was taken: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// batches are how many probes are armed at once; the globs choose them.
var batches = []struct {
	n    int
	glob string
}{{1, "many_00000"}, {1000, "many_00*"}, {10000, "many_*"}}

// turns is how often a batch is armed; what is told is the median.
const turns = 3

// arming measures how long batches of probes take to be armed and taken out,
// for how long the program stands still, and what memory it takes.
func (m *meter) arming(ctx context.Context) error {
	dir, err := os.MkdirTemp(m.dir, "many-")
	if err != nil {
		return err
	}
	p, err := start(dir, 1, batches[len(batches)-1].n)
	if err != nil {
		return err
	}
	defer p.end()
	ms := func(list []time.Duration) float64 {
		slices.Sort(list)
		return float64(list[len(list)/2].Nanoseconds()) / 1e6
	}
	first := 0
	for _, b := range batches {
		d, err := fetch.Parse("p:many " + b.glob + fetched)
		if err != nil {
			return err
		}
		var armed, out, longest, sum []time.Duration
		var grown int
		for range turns {
			bare, err := resident(p)
			if err != nil {
				return err
			}
			begin := time.Now()
			s, err := probe.Attach(ctx, []int{p.cmd.Process.Pid}, probe.Options{CountOnly: true})
			if err != nil {
				return err
			}
			if err := s.Arm(ctx, []*fetch.Def{d}); err != nil {
				return errors.Join(err, s.Close(ctx))
			}
			armed = append(armed, time.Since(begin))
			full, err := resident(p)
			places := s.Stats()[0].Places
			begin = time.Now()
			if err := errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
				return err
			}
			if places != b.n {
				return fmt.Errorf("%d places were armed for %s", places, b.glob)
			}
			out = append(out, time.Since(begin))
			long, all := s.Pauses()
			longest, sum = append(longest, long), append(sum, all)
			grown = full - bare
		}
		m.figure(ms(armed), "ms", "%d probes: from attaching until they are armed", b.n)
		m.figure(ms(out), "ms", "%d probes: taken out", b.n)
		m.figure(ms(longest), "ms", "%d probes: the program stands still, at the longest", b.n)
		m.figure(ms(sum), "ms", "%d probes: the program stands still, in all", b.n)
		if b.n == 1 {
			first = grown
			continue
		}
		m.figure(float64(grown-first)/float64(b.n-1), "bytes", "%d probes: memory of the program that each takes", b.n)
	}
	return nil
}

// resident is the memory that a process has in use, in bytes.
func resident(p *process) (int, error) {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid), "statm"))
	if err != nil {
		return 0, fmt.Errorf("read the program's size: %w", err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0, fmt.Errorf("read the program's size: %w", err)
	}
	return pages * page, nil
}

// cycles measures how long it takes to put a probe in and take it out, while
// the program runs and others stay.
func (m *meter) cycles(ctx context.Context) error {
	stay, err := fetch.Parse("p:stay pushed" + fetched)
	if err != nil {
		return err
	}
	comes, err := fetch.Parse("p:comes work" + fetched)
	if err != nil {
		return err
	}
	s, err := probe.Attach(ctx, []int{m.p.cmd.Process.Pid}, probe.Options{})
	if err != nil {
		return err
	}
	if err := s.Arm(ctx, []*fetch.Def{stay}); err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	n := 0
	start := time.Now()
	for ; err == nil && (n < fewest || time.Since(start) < m.o.Each); n++ {
		var events []*probe.Event
		if events, err = s.Add(ctx, []*fetch.Def{comes}); err == nil {
			err = s.Remove(ctx, events...)
		}
	}
	took := time.Since(start)
	if err := errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	m.figure(float64(took.Microseconds())/1e3/float64(n), "ms", "a probe is put in and taken out, another stays")
	return nil
}
