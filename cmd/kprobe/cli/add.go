package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
	"kprobe/symbols"
)

type addOptions struct {
	where
	files []string
	args  []string
}

const addLong = `Checks definitions and keeps them: all of them, or none if one is wrong. kprobe
trace and kprobe profile use kept definitions when they are given the name of a
kept event, or no definition at all.

A place without a module is looked up in the file of -x or in the process of -p,
and the file is kept with the definition. A library's short name, such as libc,
needs neither option.

A definition of an event that is already kept adds a place to it, and must fetch
the same values. -:GRP/EVENT deletes an event, and -:GRP/EVENT PLACE one of its
places, from what is kept and, with -p, from the trace. It is an error if
neither has it.

# RUNNING TRACES
If -p PID names a process that another kprobe is tracing, or one with detached
probes, that trace gets the probes too, in all of its processes. They are in
when this command ends. If they can't be put in, nothing is kept. The trace
continues and misses no hit. Probes of a library that the process has not loaded
wait for it. They are armed when it is loaded, and go when it is unloaded.

What kprobe del -p has taken out of the trace is still kept. The same definition
puts it in again.`

const addExample = `  kprobe add 'p:open libc:openat dfd=$arg1:s32 path=+0($arg2):string'
  kprobe add -x ./server 'p:web/handle handle fd=$arg1:s32' 'r:web/done handle status=$retval:s32'
  kprobe list >probes; kprobe del '*'; kprobe add -F probes
  kprobe add -p 4711 'p:slow work ms=$arg1:u64'
  kprobe add 'p:read,libc:read,fd=$arg1:s32;p:close,libc:close,fd=$arg1:s32'`

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
	c.Flags().StringArrayVarP(&o.files, "file", "F", nil, "read definitions from `FILE`; - is standard input")
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
	asked := &change{m: m, live: live, defs: defs}
	if live != nil {
		asked.pid = o.pids[0]
	}
	defs = slices.Clone(defs)
	check := &checker{d: d, m: m, where: &o.where, spaces: map[string]*symbols.Space{}}
	for i := range defs {
		if defs[i], err = check.pin(ctx, defs[i]); err != nil {
			return fail(err)
		}
	}
	return fail(file.Update(ctx, func(l *kept.List) error {
		before := l.Places()
		if err := l.Add(asked.kept(l, defs)); err != nil {
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
		return asked.make(ctx)
	}))
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
