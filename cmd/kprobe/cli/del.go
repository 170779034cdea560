package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
	"kprobe/probe"
)

type delOptions struct {
	patterns []kept.Pattern
	pids     pidList
	defs     []*fetch.Def // deletions in the language's own form
}

const delLong = `Deletes kept definitions: all places of the events that match. A GLOB is a shell
pattern for events: EVENT or GRP/EVENT. The kernel's forms work too: -:GRP/EVENT
deletes an event, -:GRP/EVENT PLACE one of its places.

A pattern that matches nothing is an error. So is an event that kprobe is
tracing now. Nothing is deleted then.

With -p PID, it takes the events out of the running trace of that process, in
all processes of the trace, or out of a process with detached probes. What is
kept stays as it is. When the command ends, the trace has got all hits of the
events; it continues with the others.

Deleted events of detached probes take no hits from now on. Where a thread may
still run in the code of such a probe, or another program traces a forked child
that has a copy of it, kprobe says that nothing else can be probed at the place
yet. The next command that changes probes of the process tries again.

Commands that change detached probes of one process at once wait for each other,
at most ten seconds. It is an error if another one has deleted all that a GLOB
names.`

const delExample = `  kprobe del open
  kprobe del 'web/*'
  kprobe del -:web/handle
  kprobe del '-:web/handle ./server:handle+4'
  kprobe del -p 4711 'web/*'`

type delRun func(ctx context.Context, d *Deps, m *messages, o *delOptions) error

func newDelCmd(d *Deps, m *messages, run delRun) *cobra.Command {
	o := &delOptions{}
	c := &cobra.Command{
		Use:     "del [-p PID…] GLOB…",
		Short:   "delete kept definitions, or take probes out",
		Long:    delLong,
		Example: delExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misuse("name the events; '*' is all")
			}
			for _, arg := range args {
				if text := strings.TrimSpace(arg); strings.HasPrefix(text, "-:") || strings.HasPrefix(text, "!") {
					def, err := fetch.Parse(text)
					if err != nil {
						return fail(err)
					}
					o.defs = append(o.defs, def)
					continue
				}
				ps, err := patterns([]string{arg})
				if err != nil {
					return err
				}
				o.patterns = append(o.patterns, ps...)
			}
			return run(c.Context(), d, m, o)
		},
		ValidArgsFunction: completeEvents(d),
	}
	c.Flags().VarP(&o.pids, "pid", "p", "delete from the trace of this process, not from what is kept (repeat, or give a comma list)")
	_ = c.RegisterFlagCompletionFunc("pid", completePIDs(d))
	return c
}

func runDel(ctx context.Context, d *Deps, m *messages, o *delOptions) error {
	if len(o.pids) > 0 {
		return fail(o.live(ctx, d, m))
	}
	file, err := d.kept()
	if err != nil {
		return fail(err)
	}
	return fail(file.Update(ctx, func(l *kept.List) error {
		before := l.Places()
		for _, p := range o.patterns {
			if len(l.Match(p.Match)) == 0 {
				return fmt.Errorf("no kept event matches %s", p)
			}
		}
		if err := l.Add(o.defs); err != nil {
			return err
		}
		l.Delete(anyOf(o.patterns))
		return file.Busy(fewer(before, l.Places()))
	}))
}

// live takes the events out of traces. Each pattern must match in one of them;
// nothing is taken out otherwise.
func (o *delOptions) live(ctx context.Context, d *Deps, m *messages) error {
	for _, def := range o.defs {
		if def.HasPlace {
			return misuse("-p takes whole events out: %s", strings.TrimSuffix(kept.Name(def), "/"))
		}
		word := def.Event
		if def.Group != "" {
			word = kept.Name(def)
		}
		o.patterns = append(o.patterns, kept.Pattern(word))
	}
	lives, err := (&enableOptions{pids: o.pids}).lives(d)
	if err != nil {
		return err
	}
	defer closeAll(lives)
	for _, p := range o.patterns {
		if !slices.ContainsFunc(lives, func(l Live) bool { return len(eventsOf(l, p)) > 0 }) {
			return fmt.Errorf("no event of the trace matches %s", p)
		}
	}
	var deleted []string
	over := false
	for i, l := range lives {
		if i > 0 {
			// What went with another process of the same trace is seen to be gone.
			if err := l.Refresh(); ended(err) {
				over = true
				continue
			} else if err != nil {
				return err
			}
		}
		names, err := o.remove(ctx, l)
		if over = over || ended(err); err != nil && !ended(err) {
			return err
		}
		deleted = append(deleted, names...)
		m.pending(o.pids[i], l)
	}
	for _, p := range o.patterns {
		its := func(name string) bool {
			group, event, _ := strings.Cut(name, "/")
			return p.Match(group, event)
		}
		if !over && !slices.ContainsFunc(deleted, its) {
			return fmt.Errorf("no event of the trace matches %s any more: another command has deleted it, or the process has executed another program", p)
		}
	}
	return nil
}

// remove takes what matches out of a trace, and gives its names. What others take out meanwhile is not among them.
func (o *delOptions) remove(ctx context.Context, l Live) ([]string, error) {
	for {
		var names []string
		for _, p := range o.patterns {
			for _, name := range eventsOf(l, p) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		if len(names) == 0 {
			return nil, nil
		}
		err := l.Remove(ctx, names)
		if !errors.Is(err, probe.ErrNoEvent) {
			return names, err
		}
		if err := l.Refresh(); errors.Is(err, probe.ErrNotTraced) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// pending says that places of deleted probes are not free yet, and why.
func (m *messages) pending(pid int, l Live) {
	for _, why := range l.Pending() {
		m.say("process %d: the deleted probes take no hits any more, but nothing else can be probed at their places yet: %s; the next change of its probes tries again", pid, why)
	}
}
