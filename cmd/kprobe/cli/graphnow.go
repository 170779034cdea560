package cli

import (
	"context"
	"errors"
	"time"

	"kprobe/output"
	"kprobe/output/graph"
	"kprobe/probe"
	"kprobe/symbols"
)

// nowPatience bounds how long a process is examined.
const nowPatience = 30 * time.Second

// checkNow checks the flags that go with --now.
func (o *graphOptions) checkNow(args []string) error {
	switch {
	case len(args) > 0 || len(o.command) > 0 || len(o.pids) == 0:
		return misuse("--now is about processes that run: -p PID, and no definitions")
	case o.slower > 0 || o.failing() || o.below != "" || len(o.not) > 0:
		return misuse("--now shows what every thread is inside of: it takes none of --below, --not, --slower, --failed")
	}
	return nil
}

// runNow shows what the threads of processes are inside of.
func (o *graphOptions) runNow(ctx context.Context, d *Deps, m *messages) error {
	w, _, done, err := o.open(d)
	if err != nil {
		return err
	}
	if d.Terminal && o.outputFile == "" {
		if _, err := w.Write([]byte(graph.NowHeader)); err != nil {
			return fail(err)
		}
	}
	for i, pid := range o.pids {
		if i > 0 {
			_, _ = w.Write([]byte("\n")) // the writer keeps its first error
		}
		if err = o.lookInside(ctx, d, m, w, pid); err != nil {
			break
		}
	}
	if werr := done(); err == nil {
		err = werr
	}
	if err != nil && !errors.Is(err, output.ErrClosed) {
		return fail(err)
	}
	return nil
}

func (o *graphOptions) lookInside(ctx context.Context, d *Deps, m *messages, w *output.Writer, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, nowPatience)
	defer cancel()
	open := o.openCalls(ctx, d, m, pid)
	p, err := d.Engine.Inside(ctx, pid, probe.InsideOptions{Open: open})
	switch {
	case errors.Is(err, symbols.ErrGone):
		return &probe.NoProcessError{PID: pid}
	case err != nil:
		return ofProcess(pid, err)
	}
	if p.Unsampled != nil {
		m.warn("%v", p.Unsampled)
	}
	mono, _ := d.Now()
	if o.depth > 0 {
		for _, t := range p.Threads {
			t.Frames = t.Frames[max(0, len(t.Frames)-o.depth):]
		}
	}
	return graph.Now(w, p, mono, !o.quiet)
}

// openCalls asks the kprobe that traces the process, if there is one.
func (o *graphOptions) openCalls(ctx context.Context, d *Deps, m *messages, pid int) []probe.OpenCall {
	l, err := d.Engine.Live(pid)
	if err != nil {
		return nil // it isn't traced, or the look at its threads says why it can't be looked at
	}
	defer l.Close()
	open, err := l.OpenCalls(ctx)
	if err != nil {
		m.warn("process %d is traced, but since when its calls go on isn't known: %v", pid, err)
	}
	return open
}
