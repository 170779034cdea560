package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kprobe/internal/plural"
	"kprobe/output"
	"kprobe/probe"
)

// addDetach adds the flag of commands that leave their probes alone.
func (o *traceOptions) addDetach(c *cobra.Command) {
	c.Flags().BoolVar(&o.detach, "detach", false, "leave the probes in the process, and end; see kprobe snapshot")
	c.Flags().BoolVar(&o.calls, "calls", false, "with --detach: record functions at entry and return, for graph and report")
	c.Flags().StringVar(&o.keep, "keep", "", "with --detach: put the buffers into `FILE`, on a tmpfs, which outlives the process")
	_ = c.MarkFlagFilename("keep")
}

// checkDetach refuses what makes no sense where nobody stays.
func (o *traceOptions) checkDetach(c *cobra.Command) error {
	switch {
	case !o.detach && c.Flags().Changed("keep"):
		return misuse("--keep goes with --detach")
	case !o.detach && o.calls:
		return misuse("--calls goes with --detach; kprobe record --calls and kprobe graph follow calls while they run")
	case !o.detach:
		return nil
	case c.Flags().Changed("keep") && (o.keep == "" || len(o.pids) > 1 || o.named):
		return misuse("--keep FILE is for one process: -p PID")
	}
	if len(o.command) > 0 {
		return misuse("--detach leaves a process that runs: start the command, and name it with -p PID")
	}
	for _, name := range []string{"events", "hist", "html", "lines", "interval", "duration", "follow", "no-optimize", "pending", "output", "rotate", "time", "let-go"} {
		if c.Flags().Changed(name) {
			return misuse("--detach and --%s cannot be used together: no kprobe stays to do it", name)
		}
	}
	return nil
}

// runDetach arms the probes and leaves them.
func runDetach(ctx context.Context, d *Deps, m *messages, o *traceOptions) (err error) {
	o.begun = time.Now()
	busy := m.busy(d.Watched && !o.quiet, "looking up places")
	defer busy.stop()
	defs, release, err := o.choose(ctx, d, m)
	defer release()
	if errors.Is(err, errNoDefinitions) {
		return err
	}
	if err != nil {
		return fail(err)
	}
	if o.inject == nil {
		if err := notInject(defs); err != nil {
			return err
		}
	}
	if o.adapt != nil {
		if defs, err = o.adapt(defs); err != nil {
			return err
		}
	}
	if o.calls {
		both := recordOptions{sessionOptions: o.sessionOptions, calls: true}
		if defs, err = both.timed(defs); err != nil {
			return fail(err)
		}
	}
	if err := probe.CheckTriggers(o.triggers, defs); err != nil {
		return fail(err)
	}
	run, signals, stop := watchSignals(ctx, d.Link)
	defer stop()
	o.fetch(run, d, m, defs)
	p := o.engine(d, m)
	p.Progress, p.Detach, p.Expect, p.Keep = busy.progress(), true, defs, o.keep
	s, err := o.begin(run, d, m, p, signals)
	if err != nil {
		if run.Err() != nil {
			err = errNotIn
		}
		return fail(err)
	}
	defer func() {
		signals.ended()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), probe.LeaveTime(s.Stats()))
		defer cancel()
		if cerr := s.Close(end); cerr != nil {
			err = both(err, fail(fmt.Errorf("take the probes out: %w: %w", errLeftBehind, cerr)))
		}
	}()
	if err := s.Arm(run, defs); err != nil {
		if run.Err() != nil {
			err = errNotIn
		}
		return fail(err)
	}
	pids := s.Pids()
	out, err := s.Detach(run)
	busy.stop()
	o.sayLeftOut(m, out)
	if err != nil {
		return fail(err)
	}
	return fail(o.sayDetached(d, m, pids, s.Stats()))
}

// mostLeftOut is how many places are named that were left out.
const mostLeftOut = 8

func (o *traceOptions) sayLeftOut(m *messages, out []probe.LeftOut) {
	for i, x := range out {
		if i == mostLeftOut && !o.verbose {
			m.warn("%s left out; -v names them all", plural.Of(len(out)-i, "more place was", "more places were"))
			break
		}
		at := ""
		if x.Place != "" {
			at = " at " + x.Place
		}
		m.warn("process %d: %s/%s%s is left out: %s", x.PID, x.Event.Group, x.Event.Name, at, x.Why)
	}
}

func (o *traceOptions) sayDetached(d *Deps, m *messages, pids []int, stats []probe.Stats) error {
	if o.form == output.JSON && !o.quiet {
		w := output.NewWriter(d.Out)
		a := output.CountArmed(stats, time.Since(o.begun))
		_, err := w.Write(a.AppendJSON(nil))
		if err := both(err, w.Close()); err != nil && !errors.Is(err, output.ErrClosed) {
			return err
		}
	}
	if o.quiet {
		return nil
	}
	o.sayInjected(m)
	if a := output.CountArmed(stats, time.Since(o.begun)); a.Events > 0 {
		m.say("%s", a.Line())
	}
	if o.keep != "" {
		m.say("%s has the hits, after the process too; kprobe snapshot %[1]s shows them", o.keep)
	}
	if o.calls {
		m.say("kprobe graph -p %s shows its last calls, kprobe report -p %[1]s how long they took", (*pidList)(&pids))
	}
	if o.inject != nil {
		m.warn("process %s has its calls changed until kprobe del -p %[1]s '*'", (*pidList)(&pids))
	}
	m.say("nothing traces process %s; kprobe snapshot -p %[1]s shows its last hits, kprobe del -p %[1]s '*' takes the probes out", (*pidList)(&pids))
	return nil
}
