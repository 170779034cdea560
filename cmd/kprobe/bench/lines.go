package bench

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"kprobe/output"
	"kprobe/probe"
	"kprobe/probe/results"
)

// printed prints the hits of runs of the program, so many before they are waited for, and
// says how many lines that was, and what they took of processors and of time.
func (m *meter) printed(ctx context.Context, form output.Form, workers, runs int) (lines float64, spent, took time.Duration, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { _ = null.Close() }()
	w := output.NewWriter(null)
	clock, err := output.NewClock("mono", 0, time.Time{})
	if err != nil {
		return 0, 0, 0, err
	}
	sink := &lineSink{trace: output.Trace{Writer: w, Format: output.Formatter{Form: form, Clock: clock}, Workers: workers}}
	var row Row
	o := probe.Options{RingSize: recordRing}
	_, out, err := armFor(ctx, m.p.cmd.Process.Pid, []string{"p:line work" + fetched}, o, &row, sink)()
	if err != nil {
		return 0, 0, 0, err
	}
	before, err := processor()
	start := time.Now()
	made := uint64(0)
	for err == nil && time.Since(start) < m.o.Each {
		for range runs {
			if _, err = m.p.call(1, m.p.function("work"), most); err != nil {
				break
			}
			made += most
		}
		sink.settle(made)
		made = sink.taken.Load() // what is missing is lost
	}
	took = time.Since(start)
	after, perr := processor()
	err = errors.Join(err, perr, out(), sink.trace.Close(), w.Close())
	return float64(sink.trace.Printed()), after - before, took, err
}

// lineSink counts what a trace takes, without a look at the rings.
type lineSink struct {
	trace output.Trace
	taken atomic.Uint64
}

// Hit implements results.Sink.
func (s *lineSink) Hit(h *results.Hit) error {
	s.taken.Add(1)
	return s.trace.Hit(h)
}

// Block implements results.BlockSink.
func (s *lineSink) Block(b results.Block) (int, error) {
	n, err := s.trace.Block(b)
	s.taken.Add(uint64(n))
	return n, err
}

// settle waits until it has taken so many hits, or no more come: some are lost.
func (s *lineSink) settle(want uint64) {
	const pause, quiet = 200 * time.Microsecond, 500 * time.Millisecond
	last, since := uint64(0), time.Now()
	for now := s.taken.Load(); now < want && time.Since(since) < quiet; now = s.taken.Load() {
		if now != last {
			last, since = now, time.Now()
		}
		time.Sleep(pause)
	}
}
