package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe"
)

// kind is a row to be measured.
type kind struct {
	name, what string
	fn         string // of the subject
	floor      floorKind
	defs       []string
	opts       probe.Options
	left       bool // with nobody who traces the program
}

const fetched = " a=%di b=%si"

// kinds are the rows, in the order of the kernel's table
// (Documentation/trace/kprobes.rst, "Probe Overhead") as far as they exist
// here.
func kinds() []kind {
	traps := probe.Options{NoOptimize: true}
	entry, ret := "p:k work"+fetched, "r:r work v=$retval"
	return []kind{
		{name: "b", what: "breakpoint, boosted; 2 arguments", fn: "work", floor: floorStop, defs: []string{entry}, opts: traps},
		{name: "o", what: "jump; 2 arguments", fn: "work", floor: floorEntry, defs: []string{entry}},
		{name: "o", what: "jump over several instructions; 2 arguments", fn: "pushed", floor: floorEntry, defs: []string{"p:o pushed" + fetched}},
		{name: "o", what: "jump; 2 arguments, a string of 12 bytes", fn: "work", floor: floorEntry, defs: []string{entry + " s=+0(%si):string"}},
		{name: "o", what: "jump; a filter that says no", fn: "work", floor: floorCount, defs: []string{"p:o work a=%di if a > 0x7fffffffffff"}},
		{name: "o", what: "jump; counted only", fn: "work", floor: floorCount, defs: []string{"p:o work"}, opts: probe.Options{CountOnly: true}},
		{name: "ol", what: "jump that was left (--detach); 2 arguments", fn: "work", floor: floorEntry, defs: []string{entry}, left: true},
		{name: "ol", what: "jump that was left; 2 arguments, a string of 12 bytes", fn: "work", floor: floorEntry, defs: []string{entry + " s=+0(%si):string"}, left: true},
		{name: "jb", what: "jprobe (2 parameters), breakpoint", fn: "work", floor: floorStop, defs: []string{"j:j work"}, opts: traps},
		{name: "j", what: "jprobe (2 parameters), jump", fn: "work", floor: floorEntry, defs: []string{"j:j work"}},
		{name: "rb", what: "return, breakpoints", fn: "work", floor: floorStops, defs: []string{ret}, opts: traps},
		{name: "ro", what: "return, jump", fn: "work", floor: floorReturn, defs: []string{ret}},
		{name: "ro", what: "return, jump over several instructions", fn: "pushed", floor: floorReturn, defs: []string{"r:r pushed v=$retval"}},
		{name: "ro", what: "return with the time at entry too, jump", fn: "work", floor: floorLatency, defs: []string{ret + " since=$entrytime"}},
		{name: "krb", what: "entry and return, breakpoints", fn: "work", floor: floorStops, defs: []string{entry, ret}, opts: traps},
		{name: "kro", what: "entry and return, jumps", fn: "work", floor: floorBoth, defs: []string{entry, ret}},
		{name: "jr", what: "jprobe and return, jumps", fn: "work", floor: floorBoth, defs: []string{"j:j work", ret}},
	}
}

// drained has no more use for a hit.
type drained struct{}

// Hit implements probe.Sink.
func (drained) Hit(*probe.Hit) error { return nil }

// arm gives what arms definitions in a process; row learns what was lost.
func arm(ctx context.Context, pid int, texts []string, o probe.Options, row *Row) armed {
	return armFor(ctx, pid, texts, o, row, drained{})
}

func parsed(texts []string) (defs []*fetch.Def, err error) {
	for _, text := range texts {
		d, err := fetch.Parse(text)
		if err != nil {
			return nil, err
		}
		defs = append(defs, d)
	}
	return defs, nil
}

// armFor is arm with the hits given to sink.
func armFor(ctx context.Context, pid int, texts []string, o probe.Options, row *Row, sink probe.Sink) armed {
	return traced(ctx, pid, texts, o, sink, func(s *probe.Session) error {
		row.Lost = lost(s)
		return hit(s)
	})
}

// armIdle gives what arms a definition that has no hits.
func armIdle(ctx context.Context, pid int, text string, o probe.Options) armed {
	return traced(ctx, pid, []string{text}, o, drained{}, func(*probe.Session) error { return nil })
}

// traced gives what arms definitions in a process and traces it; done looks at the session
// at its end.
func traced(ctx context.Context, pid int, texts []string, o probe.Options, sink probe.Sink, done func(*probe.Session) error) armed {
	return func() (between, out func() error, err error) {
		defs, err := parsed(texts)
		if err != nil {
			return nil, nil, err
		}
		s, err := probe.Attach(ctx, []int{pid}, o)
		if err != nil {
			return nil, nil, err
		}
		if err := s.Arm(ctx, defs); err != nil {
			return nil, nil, errors.Join(err, s.Close(ctx))
		}
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := s.Run(run, sink)
			if run.Err() == nil || ctx.Err() != nil {
				// Nobody answers breakpoints any more: whoever waits for the
				// program would wait for ever.
				_ = unix.Kill(pid, unix.SIGKILL)
				err = errors.Join(errors.New("the trace ended"), err)
			}
			ended <- err
		}()
		return func() error { return settle(s) }, func() error {
			stop()
			err := errors.Join(<-ended, s.Close(context.WithoutCancel(ctx)))
			return errors.Join(err, done(s))
		}, nil
	}
}

// kind measures a row of kprobe's own.
func (m *meter) kind(ctx context.Context, k *kind) error {
	row := Row{Kind: k.name, What: k.what}
	put := arm(ctx, m.p.cmd.Process.Pid, k.defs, k.opts, &row)
	if k.left {
		put = armLeft(ctx, m.p.cmd.Process.Pid, k.defs, &row)
	}
	if err := m.cost(&row, k.fn, k.floor, put); err != nil {
		return err
	}
	side := "p"
	if k.defs[len(k.defs)-1][0] == 'r' {
		side = "r"
	}
	if len(k.defs) == 1 && !k.left {
		row.Kernel = m.kernel[side+" "+k.fn]
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
		if st.Hits < fewest*least {
			return fmt.Errorf("%s was hit %d times only", st.Event.Name, st.Hits)
		}
	}
	return nil
}
