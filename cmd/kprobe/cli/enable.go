package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
	"kprobe/probe"
)

type enableOptions struct {
	patterns []kept.Pattern
	pids     pidList
	on       bool
}

const enableLong = `Enables events that kprobe disable has disabled. Kept events are armed again by
traces that start from now on. In running traces, the events take hits again at
once. With -p PID only the traces of that process change, and what is kept stays
as it is.

A GLOB is a shell pattern for events: EVENT or GRP/EVENT. A pattern that matches
nothing is an error.`

const disableLong = `Disables events. Kept events stay, but are not armed. In running traces, the
events take no hits from now on, until they are enabled again. With -p PID only
the traces of that process change, and what is kept stays as it is.

A GLOB is a shell pattern for events: EVENT or GRP/EVENT. A pattern that matches
nothing is an error.`

type enableRun func(ctx context.Context, d *Deps, o *enableOptions) error

func newEnableCmd(d *Deps, run enableRun) *cobra.Command {
	return switchCmd(d, run, true, &cobra.Command{
		Use: "enable [-p PID…] GLOB…", Short: "enable events", Long: enableLong,
		Example: "  kprobe enable 'web/*'\n  kprobe enable -p 4711 open",
	})
}

func newDisableCmd(d *Deps, run enableRun) *cobra.Command {
	return switchCmd(d, run, false, &cobra.Command{
		Use: "disable [-p PID…] GLOB…", Short: "disable events", Long: disableLong,
		Example: "  kprobe disable open 'web/*'\n  kprobe disable -p 4711 open",
	})
}

func switchCmd(d *Deps, run enableRun, on bool, c *cobra.Command) *cobra.Command {
	o := &enableOptions{on: on}
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if len(args) == 0 {
			return misuse("name the events; '*' is all")
		}
		if o.patterns, err = patterns(args); err != nil {
			return err
		}
		return run(c.Context(), d, o)
	}
	c.ValidArgsFunction = completeEvents(d)
	c.Flags().VarP(&o.pids, "pid", "p", "change only the traces of this process, not what is kept (repeat, or give a comma list)")
	_ = c.RegisterFlagCompletionFunc("pid", completePIDs(d))
	return c
}

func runEnable(ctx context.Context, d *Deps, o *enableOptions) error {
	lives, err := o.lives(d)
	if err != nil {
		return fail(err)
	}
	defer closeAll(lives)
	if len(o.pids) > 0 {
		return fail(o.live(lives, func(kept.Pattern) bool { return false }))
	}
	file, err := d.kept()
	if err != nil {
		return fail(err)
	}
	var late *probe.SemaphoreError // everything else is done
	err = file.Update(ctx, func(l *kept.List) error {
		err := o.live(lives, func(p kept.Pattern) bool { return len(l.Enable(p.Match, o.on)) > 0 })
		if errors.As(err, &late) {
			return nil
		}
		return err
	})
	if err == nil && late != nil {
		err = late
	}
	return fail(err)
}

// lives gives the sessions of the processes, or all that there are.
func (o *enableOptions) lives(d *Deps) ([]Live, error) {
	pids := []int(o.pids)
	if len(pids) == 0 {
		var err error
		if pids, err = d.Engine.LivePIDs(); err != nil {
			return nil, err
		}
	}
	var out []Live
	for _, pid := range pids {
		l, err := d.live(pid)
		switch {
		case err == nil:
			out = append(out, l)
		case len(o.pids) > 0:
			closeAll(out)
			return nil, err
		}
	}
	return out, nil
}

// live switches the events of sessions. Every pattern must match there, or
// where also reports that it did; nothing is switched otherwise.
func (o *enableOptions) live(lives []Live, also func(kept.Pattern) bool) error {
	for _, p := range o.patterns {
		found := also(p)
		for _, l := range lives {
			found = found || len(eventsOf(l, p)) > 0
		}
		if !found {
			return fmt.Errorf("no event matches %s", p)
		}
	}
	var late error
	for _, l := range lives {
		_, err := l.Enable(anyOf(o.patterns), o.on)
		var semaphores *probe.SemaphoreError
		if errors.As(err, &semaphores) {
			late = err
		} else if err != nil && !ended(err) {
			return err
		}
	}
	return late
}

// eventsOf lists the events of a session that match.
func eventsOf(l Live, p kept.Pattern) []string {
	var out []string
	for _, s := range l.Stats() {
		if p.Match(s.Event.Group, s.Event.Name) {
			out = append(out, s.Event.Group+"/"+s.Event.Name)
		}
	}
	return out
}
