package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe"
)

// Program is what probes of all functions of a real program cost it.
type Program struct {
	Name, Work string // which program, and what it does
	Probes     string // entries or returns
	Places     int    // functions that are probed
	Trapped    int    // of them by breakpoints
	// Hits are how many an operation of the work has, NS the processor time that it takes
	// the program without probes.
	Hits, NS float64
	// CPU is the processor time of an operation without probes by that with them, and
	// Throughput the operations a second with them by those without: what is left of the
	// program, the medians of several turns, if that doesn't take long. 1 is no cost.
	CPU, Throughput float64
	// Armed is how long it took to arm them, Longest for how long the program stood still
	// meanwhile, at the longest; Memory how many bytes of it they took.
	Armed, Longest time.Duration
	Memory         int
}

// allOf are the probes that a program is measured with.
var allOf = []struct{ name, def string }{{"entries", "p:all %s:*"}, {"returns", "r:all %s:*"}}

// programTurns is how often each program is measured without and with probes, or once
// where it takes longer than slowArming to put them in.
const (
	programTurns = 3
	slowArming   = 3 * time.Second
)

// RunPrograms measures what counting all calls, and all returns, of real programs costs
// these: those that are installed, by a load of their own. Those that are not are in the
// report's Skipped, with any that could not be measured. Only Each of the options is looked at.
func RunPrograms(ctx context.Context, o Options) (*Report, error) {
	if o.Each <= 0 {
		o.Each = DefaultEach
	}
	m := &meter{o: o, report: &Report{}}
	for _, x := range loads() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.program(ctx, &x); err != nil && ctx.Err() == nil {
			m.skip(fmt.Sprintf("%s: %v", x.name, err))
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return m.report, nil
}

// program measures a program.
func (m *meter) program(ctx context.Context, x *load) (err error) {
	dir, err := os.MkdirTemp("", "kprobe-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for it: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := x.start(ctx, dir)
	if err != nil {
		return err
	}
	defer r.end()
	module, err := moduleOf(r.pid, x.library)
	if err != nil {
		return err
	}
	for _, w := range x.works {
		if _, err := m.spell(r, w.name); err != nil { // warm
			return err
		}
	}
	for _, all := range allOf {
		rows := make([]Program, len(x.works))
		var cpu, throughput, ns [][]float64
		for i, w := range x.works {
			rows[i] = Program{Name: x.name, Work: w.what, Probes: all.name}
			cpu, throughput, ns = append(cpu, nil), append(throughput, nil), append(ns, nil)
		}
		for range programTurns {
			if err := ctx.Err(); err != nil {
				return err
			}
			bare := make([]spell, len(rows))
			for i, w := range x.works {
				if bare[i], err = m.spell(r, w.name); err != nil {
					return err
				}
			}
			t := probedLoad{meter: m, r: r, works: x.works, rows: rows}
			with, err := t.run(ctx, fmt.Sprintf(all.def, module))
			if err != nil {
				return err
			}
			for i := range rows {
				ns[i] = append(ns[i], bare[i].perOp())
				cpu[i] = append(cpu[i], bare[i].perOp()/with[i].perOp())
				throughput[i] = append(throughput[i], with[i].rate()/bare[i].rate())
			}
			if rows[0].Armed > slowArming {
				break
			}
		}
		for i := range rows {
			rows[i].NS, rows[i].CPU, rows[i].Throughput = middle(ns[i]), middle(cpu[i]), middle(throughput[i])
		}
		m.report.Programs = append(m.report.Programs, rows...)
	}
	return nil
}

// probedLoad is a program with probes.
type probedLoad struct {
	*meter
	r     *running
	works []piece
	rows  []Program
}

// run arms a definition and has all works done.
func (t *probedLoad) run(ctx context.Context, def string) (with []spell, err error) {
	size, err := residentOf(t.r.pid)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	var s *probe.Session
	_, out, err := traced(ctx, t.r.pid, []string{def}, probe.Options{CountOnly: true}, drained{}, func(at *probe.Session) error {
		s = at
		return nil
	})()
	if err != nil {
		return nil, err
	}
	armed := time.Since(begin)
	for _, w := range t.works {
		x, serr := t.spell(t.r, w.name)
		if err = serr; err != nil {
			break
		}
		with = append(with, x)
	}
	full, rerr := residentOf(t.r.pid)
	if err = errors.Join(err, rerr, out()); err != nil {
		return nil, err
	}
	st := s.Stats()[0]
	if st.Hits == 0 {
		return nil, fmt.Errorf("%s was hit by nothing", def)
	}
	ops := 0
	for _, x := range with {
		ops += x.ops
	}
	longest, _ := s.Pauses()
	for i := range t.rows {
		p := &t.rows[i]
		p.Places, p.Trapped, p.Hits = st.Places, st.Trapped, float64(st.Hits)/float64(ops)
		p.Armed, p.Longest, p.Memory = armed, longest, max(0, full-size)
	}
	return with, nil
}

// spell is what a program did in a while.
type spell struct {
	ops       int
	cpu, wall time.Duration
}

func (s *spell) perOp() float64 { return float64(s.cpu.Nanoseconds()) / float64(s.ops) }
func (s *spell) rate() float64  { return float64(s.ops) / s.wall.Seconds() }

// spell has the program work for a while.
func (m *meter) spell(r *running, work string) (s spell, err error) {
	before, err := processorOf(r.pid)
	begin := time.Now()
	for err == nil && (s.ops == 0 || time.Since(begin) < m.o.Each) {
		var n int
		n, err = r.work(work)
		s.ops += n
	}
	s.wall = time.Since(begin)
	after, perr := processorOf(r.pid)
	if err = errors.Join(err, perr); err == nil && (s.ops == 0 || after <= before) {
		err = fmt.Errorf("%s: no work was done", work)
	}
	s.cpu = after - before
	return s, err
}

// processorOf is how much time of processors a process has taken.
func processorOf(pid int) (time.Duration, error) {
	var now unix.Timespec
	// The clock of another process (clock_getcpuclockid(3)), of all its threads.
	clock := int32(^uint32(pid)<<3 | 2)
	if err := unix.ClockGettime(clock, &now); err != nil {
		return 0, fmt.Errorf("read how much time it has taken: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// residentOf is the memory that a process has in use, in bytes, but for what it shares
// with kprobe.
func residentOf(pid int) (int, error) {
	st, err := procfs.Process(pid).Status()
	if err != nil {
		return 0, fmt.Errorf("read the program's size: %w", err)
	}
	return (st.Int("RssAnon") + st.Int("RssFile")) << 10, nil // they are in KiB
}

// middle is the median.
func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
