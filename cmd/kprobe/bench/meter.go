package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kprobe/fetch"
	"kprobe/probe"
)

// meter measures one row after the other.
type meter struct {
	p      *process
	o      Options
	report *Report
	floor  [floorLatency + 1]float64
}

const (
	// batch is how many hits fit into a ring between two looks of its reader.
	batch = 16000
	// dear is from how many ns on a hit is measured in few calls.
	dear      = 500
	dearBatch = 400
)

// sample measures a function with so many threads: the median of runs. between,
// if not nil, is called after each.
func (m *meter) sample(threads int, fn uint64, between func() error) (float64, error) {
	runs, n := 41, batch
	if m.o.Quick {
		runs = 5
	}
	first, err := m.p.call(threads, fn, 100)
	if err != nil {
		return 0, err
	}
	if first > dear {
		// Once more: the first calls fault pages in.
		if first, err = m.p.call(threads, fn, 100); err != nil {
			return 0, err
		}
	}
	if first > dear {
		runs, n = min(runs, 9), dearBatch
	}
	n = max(n/threads, 100)
	list := make([]float64, 0, runs)
	for range runs {
		if between != nil {
			if err := between(); err != nil {
				return 0, err
			}
		}
		ns, err := m.p.call(threads, fn, n)
		if err != nil {
			return 0, err
		}
		list = append(list, ns)
	}
	slices.Sort(list)
	return list[len(list)/2], nil
}

// cost gives what the probes on a function cost for each number of threads,
// and the bare call with one. armed puts them in and returns what is to be
// called between runs, and what takes them out.
func (m *meter) cost(fn uint64, armed func() (between, out func() error, err error)) (ns []float64, bare float64, err error) {
	bares := make([]float64, len(m.o.Threads))
	for i, threads := range m.o.Threads {
		if bares[i], err = m.sample(threads, fn, nil); err != nil {
			return nil, 0, err
		}
	}
	between, out, err := armed()
	if err != nil {
		return nil, 0, err
	}
	for i, threads := range m.o.Threads {
		with, serr := m.sample(threads, fn, between)
		if serr != nil {
			err = serr
			break
		}
		ns = append(ns, with-bares[i])
	}
	return ns, bares[0], errors.Join(err, out())
}

// floors measures the detours that are written by hand, against work.
func (m *meter) floors() error {
	if !rdpid() {
		m.skip("the floor: the processor has no rdpid")
		return nil
	}
	for k := floorCount; k <= floorLatency; k++ {
		row := Row{Kind: "floor", What: [...]string{
			floorCount: "by hand: counted only", floorEntry: "by hand: entry, 2 arguments",
			floorReturn: "by hand: return", floorLatency: "by hand: return, time at entry too",
		}[k]}
		for i, threads := range m.o.Threads {
			if k >= floorReturn && threads > 1 {
				break // its pool has one instance
			}
			bare, err := m.sample(threads, m.p.function("work"), nil)
			if err != nil {
				return err
			}
			with, err := m.sample(threads, m.p.function(k.name()), nil)
			if err != nil {
				return err
			}
			if i == 0 {
				row.Bare, m.floor[k] = bare, with-bare
			}
			row.NS = append(row.NS, with-bare)
		}
		m.report.Rows = append(m.report.Rows, row)
	}
	return nil
}

func (m *meter) skip(why string) { m.report.Skipped = append(m.report.Skipped, why) }

// drained has no more use for a hit.
type drained struct{}

// Hit implements probe.Sink.
func (drained) Hit(*probe.Hit) error { return nil }

// kind measures a row of kprobe's own.
func (m *meter) kind(ctx context.Context, k *kind) error {
	var defs []*fetch.Def
	for _, text := range k.defs {
		d, err := fetch.Parse(text)
		if err != nil {
			return err
		}
		defs = append(defs, d)
	}
	row := Row{Kind: k.name, What: k.what, Floor: m.floor[k.floor]}
	var err error
	row.NS, row.Bare, err = m.cost(m.p.function(k.fn), func() (between, out func() error, err error) {
		s, err := probe.Attach(ctx, []int{m.p.cmd.Process.Pid}, k.opts)
		if err != nil {
			return nil, nil, err
		}
		if err := s.Arm(ctx, defs); err != nil {
			return nil, nil, errors.Join(err, s.Close(ctx))
		}
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := s.Run(run, drained{})
			ended <- err
		}()
		return func() error { return settle(s) }, func() error {
			stop()
			err := errors.Join(<-ended, s.Close(context.WithoutCancel(ctx)))
			row.Lost, err = lost(s), errors.Join(err, hit(s))
			return err
		}, nil
	})
	if err != nil {
		return err
	}
	m.report.Rows = append(m.report.Rows, row)
	return nil
}

// settle waits until the reader has taken what is in the rings, so that the
// next run finds them empty.
func settle(s *probe.Session) error {
	for range 2000 {
		open := uint64(0)
		for _, st := range s.Stats() {
			open += st.Hits - min(st.Hits, st.Recorded+st.Filtered+st.Lost)
		}
		if open == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("hits stayed in the rings for two seconds")
}

// lost is the share of hits without a record.
func lost(s *probe.Session) float64 {
	hits, lost := uint64(0), uint64(0)
	for _, st := range s.Stats() {
		hits, lost = hits+st.Hits, lost+st.Lost+st.Missed
	}
	if hits == 0 {
		return 0
	}
	return float64(lost) / float64(hits)
}

// hit makes sure that what was measured were hits.
func hit(s *probe.Session) error {
	for _, st := range s.Stats() {
		if st.Hits < 100 {
			return fmt.Errorf("%s was hit %d times only", st.Event.Name, st.Hits)
		}
	}
	return nil
}
