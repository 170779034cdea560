package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/probe"
)

type injectOptions struct {
	traceOptions
	result, errno string
	delay         time.Duration
	every, limit  uint64
}

const injectLong = `Makes calls of a function fail or wait, to test how a program reacts. This is
the only command that changes what a program does.

FUNC is a function, or a definition of a probe at its entry, which may fetch
values and have a filter. A call that passes the filter

  --return VALUE   returns VALUE at once; the function is not executed
  --errno ENAME    returns -1 at once, or the VALUE of --return, with that errno
  --delay TIME     waits for TIME at the function's entry

--delay combines with the others: the call first waits. While it waits, the
thread takes no signal but SIGKILL. --every N changes each Nth of these calls,
--limit N at most N in all.

Each changed call is a line, as of kprobe trace, of an event in the group
inject. kprobe list --sites shows it while it lasts. Calls that were not changed
count as filtered.

# MECHANISM
A jump at the function's entry makes the call return, at some ten nanoseconds. A
delay is a breakpoint, at some ten microseconds. So are counts over the calls of
several processes. When kprobe ends, however it ends, the program is as it was;
a call that waits goes on.

--return takes an integer or a pointer: the value of %ax when the function
returns. Functions of Go can only be delayed. --errno needs a C library whose
errno is a thread-local variable, such as glibc's.

# DETACHED INJECTION
With --detach kprobe leaves at once. Calls are changed, as --every and --limit
say, until kprobe del -p PID '*'. kprobe list --sites -p PID shows the probe,
kprobe snapshot -p PID the last changed calls. A delay can't be detached: it
needs a kprobe to end it.`

const injectExample = `  kprobe inject -p 4711 libc:malloc --return 0 --every 1000
  kprobe inject -p 4711 'libc:write fd=$arg1:s32' 'if fd > 2' --errno ENOSPC --limit 1
  kprobe inject -p 4711 libc:fsync --delay 200ms -t 10s
  kprobe inject libc:openat --errno EMFILE --every 3 -- ls -l /usr
  kprobe inject -p 4711 libc:malloc --return 0 --every 100000 --limit 5 --detach`

type injectRun func(ctx context.Context, d *Deps, m *messages, o *traceOptions) error

func newInjectCmd(d *Deps, m *messages, run injectRun) *cobra.Command {
	o := &injectOptions{}
	c := &cobra.Command{
		Use:     "inject [flags] FUNC [NAME=VALUE…] [if FILTER] [-p PID… | -- CMD ARG…]",
		Short:   "make calls of a function fail or wait",
		Long:    injectLong,
		Example: injectExample,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.arguments(c, d, args); err != nil {
				return err
			}
			if len(o.defs.args) == 0 {
				return misuse("name the function whose calls are to be changed, such as libc:malloc")
			}
			o.defs.args = []string{strings.Join(o.defs.args, " ")}
			i, err := o.injection(c)
			if err != nil {
				return err
			}
			if err := o.checkDetached(c); err != nil {
				return err
			}
			o.inject, o.time, o.strSize, o.adapt = i, "mono", fetch.MaxString, toInject
			o.does = o.says(o.defs.args[0])
			return run(c.Context(), d, m, &o.traceOptions)
		},
	}
	o.register(c, d)
	_ = c.Flags().MarkHidden("let-go") // calls that are changed need their tracer
	for _, name := range [...]string{"file", "no-optimize", "maxactive", "ring"} {
		// Fails only for a flag that does not exist.
		_ = c.Flags().MarkHidden(name)
	}
	f := c.Flags()
	f.BoolVar(&o.detach, "detach", false, "leave the process with its calls changed until kprobe del")
	f.StringVar(&o.keep, "keep", "", "with --detach: record the changed calls in `FILE`, on a tmpfs")
	_ = c.MarkFlagFilename("keep")
	f.StringVar(&o.result, "return", "", "make calls return `VALUE`, a number")
	f.StringVar(&o.errno, "errno", "", "make calls return -1 and set errno to `ENAME`, such as ENOSPC")
	f.DurationVar(&o.delay, "delay", 0, "make calls wait for `TIME`, such as 10ms")
	f.Uint64Var(&o.every, "every", 1, "change only each `N`th call")
	f.Uint64Var(&o.limit, "limit", 0, "change at most `N` calls")
	f.Uint64VarP(&o.events, "events", "n", 0, "end after `N` changed calls")
	return c
}

// checkDetached refuses what nobody stays to do.
func (o *injectOptions) checkDetached(c *cobra.Command) error {
	if err := o.checkDetach(c); err != nil || !o.detach {
		return err
	}
	switch {
	case o.delay > 0:
		return misuse("--detach and --delay cannot be used together: only a running kprobe can continue a call that waits")
	case len(o.pids) > 1 && (o.every > 1 || o.limit > 0):
		return misuse("--detach with --every or --limit is for one process: each would count by itself")
	}
	return nil
}

// injection makes what the flags say of them.
func (o *injectOptions) injection(c *cobra.Command) (*probe.Injection, error) {
	i := &probe.Injection{Delay: o.delay, Every: o.every, Limit: o.limit}
	changed := c.Flags().Changed
	switch {
	case !changed("return") && !changed("errno") && !changed("delay"):
		return nil, misuse("say what calls should do: --return VALUE, --errno ENAME or --delay TIME")
	case changed("delay") && o.delay <= 0:
		return nil, misuse("--delay %v: give a time above 0", o.delay)
	case o.every == 0:
		return nil, misuse("--every 0: give a number above 0")
	case changed("limit") && o.limit == 0:
		return nil, misuse("--limit 0: give a number above 0")
	}
	if changed("errno") {
		n, err := errnoOf(o.errno)
		if err != nil {
			return nil, err
		}
		failed := ^uint64(0)
		i.Errno, i.Result = n, &failed
	}
	if changed("return") {
		v, err := wordOf(o.result)
		if err != nil {
			return nil, err
		}
		i.Result = &v
	}
	return i, nil
}

// says tells what is done to calls of a function.
func (o *injectOptions) says(def string) string {
	var does, most []string
	if o.delay > 0 {
		does = append(does, fmt.Sprintf("wait %v", o.delay))
	}
	switch {
	case o.result != "":
		does = append(does, "return "+o.result)
	case o.errno != "":
		does = append(does, "return -1")
	}
	if o.errno != "" {
		does = append(does, "errno "+strings.ToUpper(o.errno))
	}
	if o.every > 1 {
		most = append(most, "each "+ordinal(o.every))
	}
	if o.limit > 0 {
		most = append(most, fmt.Sprintf("%d at most", o.limit))
	}
	function, _, _ := strings.Cut(strings.TrimPrefix(def, "p "), " ")
	text := "calls of " + function + " " + strings.Join(does, ", ")
	if len(most) > 0 {
		text += ": " + strings.Join(most, ", ")
	}
	return text
}

// ordinal writes 2 as 2nd.
func ordinal(n uint64) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.FormatUint(n, 10) + suffix
}

// wordOf reads what a register is to hold: a number, signed or not.
func wordOf(text string) (uint64, error) {
	if v, err := strconv.ParseInt(text, 0, 64); err == nil {
		return uint64(v), nil
	}
	v, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, misuse("--return %q: give a number of 64 bits, such as 0, -1 or 0xff", text)
	}
	return v, nil
}

// lastErrno is the largest number that the kernel's errors may have (MAX_ERRNO in
// include/linux/err.h).
const lastErrno = 4095

// errnoOf reads an error's name, or its number.
func errnoOf(text string) (int32, error) {
	if n, err := strconv.ParseUint(text, 0, 16); err == nil && n > 0 && n <= lastErrno {
		return int32(n), nil
	}
	for n := unix.Errno(1); n <= lastErrno; n++ {
		if name := unix.ErrnoName(n); name != "" && strings.EqualFold(name, text) {
			return int32(n), nil
		}
	}
	return 0, misuse("--errno %q: give an error's name, such as ENOSPC, or its number", text)
}

// toInject makes definitions of such events.
func toInject(defs []*fetch.Def) ([]*fetch.Def, error) {
	for _, d := range defs {
		if d.Kind != fetch.Entry {
			return nil, fail(&probe.DefError{Def: d, Err: errors.New("a call is changed at its entry: write the function alone, or p")})
		}
		d.Group = output.InjectGroup
	}
	return defs, nil
}

// notInject refuses, where calls are only looked at, the group that says otherwise.
func notInject(defs []*fetch.Def) error {
	for _, d := range defs {
		if d.Group == output.InjectGroup {
			return fail(&probe.DefError{Def: d, Err: errors.New("the group inject is reserved for kprobe inject: choose another")})
		}
	}
	return nil
}
