package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/symbols"
)

type addOptions struct {
	where
	files []string
	args  []string
}

const addLong = `Checks definitions against the file that they are about, and keeps them: all of
them, or none where one is wrong. kprobe trace and kprobe profile use what is
kept when they are given no definition, or the name of a kept event.

Places without a module are looked up in the file of -x, or in the process of
-p, and the file is kept with them. A library's short name, such as libc, needs
neither.

With -p PID of a process that another kprobe is tracing, that trace gets the
probes too, in all of its processes, before this command ends; where they can't
be put in, nothing is kept either. The trace goes on and misses no hit.

A definition of an event that is kept already adds a place to it; it must fetch
the same. -:GRP/EVENT takes an event out, and so does -:GRP/EVENT PLACE one of
its places.`

const addExample = `  kprobe add 'p:open libc:openat dfd=$arg1:s32 path=+0($arg2):string'
  kprobe add -x ./server 'p:web/handle handle fd=$arg1:s32' 'r:web/done handle status=$retval:s32'
  kprobe list | kprobe add -F -
  kprobe add -p 4711 'p:slow work ms=$arg1:u64'
  kprobe add 'p:open,libc:openat,dfd=$arg1:s32;p:close,libc:close,fd=$arg1:s32'`

type addRun func(ctx context.Context, d *Deps, m *messages, o *addOptions) error

func newAddCmd(d *Deps, m *messages, run addRun) *cobra.Command {
	o := &addOptions{}
	c := &cobra.Command{
		Use:     "add [-x FILE | -p PID] DEF…",
		Short:   "check definitions and keep them",
		Long:    addLong,
		Example: addExample,
		RunE: func(c *cobra.Command, args []string) error {
			o.args = args
			if len(o.args) == 0 && len(o.files) == 0 {
				return misuse("name a place, such as libc:openat, or a file of definitions with -F")
			}
			if err := o.check(); err != nil {
				return err
			}
			return run(c.Context(), d, m, o)
		},
	}
	o.register(c, d)
	c.Flags().StringArrayVarP(&o.files, "file", "F", nil, "read definitions from this `FILE`, - is standard input")
	return c
}

func runAdd(ctx context.Context, d *Deps, m *messages, o *addOptions) error {
	file, err := d.kept()
	if err != nil {
		return fail(err)
	}
	src := sources{files: o.files, args: o.args, exec: o.exec}
	defs, err := src.parse(d.In)
	if err != nil {
		return fail(err)
	}
	live, err := o.traced(d)
	if err != nil {
		return fail(err)
	}
	if live != nil {
		defer live.Close()
	}
	asked := defs
	defs = slices.Clone(defs)
	check := &checker{d: d, m: m, where: &o.where, spaces: map[string]*symbols.Space{}}
	for i := range defs {
		if defs[i], err = check.pin(ctx, defs[i]); err != nil {
			return fail(err)
		}
	}
	return fail(file.Update(ctx, func(l *kept.List) error {
		before := l.Places()
		if err := l.Add(defs); err != nil {
			return err
		}
		// What is disabled in a list that is added stays so.
		l.Enable(func(group, event string) bool {
			name := group + "/" + event
			return src.disabled[name] && before[name] == 0
		}, false)
		if err := file.Busy(fewer(before, l.Places())); err != nil {
			return err
		}
		return addLive(ctx, live, asked)
	}))
}

// traced gives the trace of the process of -p that is going on; nil if there is
// none, or no -p.
func (o *addOptions) traced(d *Deps) (Live, error) {
	if len(o.pids) == 0 {
		return nil, nil
	}
	l, err := d.Engine.Live(o.pids[0])
	switch {
	case errors.Is(err, probe.ErrNotTraced):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("process %d: %w", o.pids[0], err)
	}
	return l, nil
}

// addLive has a trace do what the definitions say: those that delete come
// first. A trace that ends meanwhile needs nothing.
func addLive(ctx context.Context, l Live, defs []*fetch.Def) error {
	if l == nil {
		return nil
	}
	var put []*fetch.Def
	var take []string
	for _, def := range defs {
		if def.Kind != fetch.Delete {
			put = append(put, def)
			continue
		}
		for _, s := range l.Stats() {
			name := s.Event.Group + "/" + s.Event.Name
			if s.Event.Name == def.Event && (def.Group == "" || s.Event.Group == def.Group) && !slices.Contains(take, name) {
				take = append(take, name)
			}
		}
	}
	if err := l.Remove(ctx, take); err != nil {
		return unlessEnded(err)
	}
	return unlessEnded(l.Add(ctx, put))
}

// fewer lists the events that have lost places.
func fewer(before, after map[string]int) []string {
	var out []string
	for name, n := range before {
		if after[name] < n {
			out = append(out, name)
		}
	}
	return out
}
