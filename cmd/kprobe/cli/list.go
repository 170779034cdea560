package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/output"
)

type listOptions struct {
	patterns []kept.Pattern
	sites    bool
	pids     pidList
	form     output.Form
}

const listLong = `Lists the kept definitions, in the order in which they were added. kprobe add -F
reads the output back. A GLOB is a shell pattern for events: EVENT or GRP/EVENT.
A disabled event has a comment above it that says so.

--sites lists instead the places where probes are in now, in all processes that
kprobe is tracing, or in those of -p. This does not disturb the traces or the
processes. The format is that of the kernel's kprobes/list: address, k or r for
a return probe, SYM+0xOFF, the library, and

[OPTIMIZED] :: a hit takes no trap
[DISABLED] :: the event is disabled
[GONE] :: the code is no longer mapped; an event that waits for its library has address 0, its
name, and this

Standard error says two more things. Of detached probes: whether they record in
restartable sequences or with locked instructions, and why. Of a trace with
--let-go: whether the process is untraced now, and why not.`

const listExample = `  kprobe list
  kprobe list 'web/*' > web.probes
  kprobe list --sites -p 4711
  kprobe list --json | jq -r 'select(.disabled) | .event'`

type listRun func(ctx context.Context, d *Deps, m *messages, o *listOptions) error

func newListCmd(d *Deps, m *messages, run listRun) *cobra.Command {
	o := &listOptions{}
	c := &cobra.Command{
		Use:     "list [--sites [-p PID…]] [GLOB…]",
		Short:   "list kept definitions, or armed places",
		Long:    listLong,
		Example: listExample,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.patterns, err = patterns(args); err != nil {
				return err
			}
			if len(o.pids) > 0 && !o.sites {
				return misuse("-p PID goes with --sites: definitions are kept for all processes")
			}
			return run(c.Context(), d, m, o)
		},
		ValidArgsFunction: completeEvents(d),
	}
	c.Flags().BoolVar(&o.sites, "sites", false, "list the places that are probed now")
	c.Flags().VarP(&o.pids, "pid", "p", "with --sites: only this process (repeat, or give a comma list)")
	_ = c.RegisterFlagCompletionFunc("pid", completePIDs(d))
	addFormat(c.Flags(), &o.form)
	return c
}

func runList(_ context.Context, d *Deps, m *messages, o *listOptions) error {
	if o.sites {
		return runSites(d, m, o)
	}
	file, err := d.kept()
	if err != nil {
		return fail(err)
	}
	l, err := file.Read()
	if err != nil {
		return fail(err)
	}
	for _, p := range o.patterns {
		if len(l.Match(p.Match)) == 0 {
			return fail(fmt.Errorf("no kept event matches %s", p))
		}
	}
	if len(o.patterns) > 0 {
		l.Keep(anyOf(o.patterns))
	}
	w := output.NewWriter(d.Out)
	text := l.Bytes()
	if d.Terminal {
		text = plainLines(text)
	}
	if o.form == output.JSON {
		text = nil
		for _, def := range l.Defs() {
			text = appendDefinition(text, def, l.Disabled(kept.Name(def)))
		}
	}
	_, err = w.Write(text)
	return closed(w, err)
}

// plainLines is text as a terminal may show it; a file or a pipe gets it as it
// was kept.
func plainLines(text []byte) []byte {
	var out []byte
	for line := range strings.Lines(string(text)) {
		out = append(quote.AppendPlain(out, strings.TrimSuffix(line, "\n")), '\n')
	}
	return out
}

func runSites(d *Deps, m *messages, o *listOptions) error {
	pids := []int(o.pids)
	if len(pids) == 0 {
		var err error
		if pids, err = d.Engine.LivePIDs(); err != nil {
			return fail(err)
		}
	}
	match := func(string, string) bool { return true }
	if len(o.patterns) > 0 {
		match = anyOf(o.patterns)
	}
	w := output.NewWriter(d.Out)
	for _, pid := range pids {
		l, err := d.live(pid)
		var sites []output.Site
		var ways []string
		var traced string
		if err == nil {
			ways = l.HitsLocked()
			if lets, why := l.LetsGo(); lets {
				traced = tracedLine(pid, why)
			}
			if sites, err = sitesOf(pid, l, match); err != nil {
				err = ofProcess(pid, err)
			}
			l.Close()
		}
		if err != nil && len(o.pids) == 0 && ended(err) {
			continue // it has ended since
		}
		if err == nil {
			_, err = w.Write(appendSites(nil, sites, o, len(pids) > 1, d.width()))
		}
		if err == nil {
			sayWays(m, pid, ways)
			if traced != "" {
				m.say("%s", traced)
			}
		}
		if err != nil {
			return closed(w, err)
		}
	}
	return closed(w, nil)
}

// sayWays says which way the hits go of probes that were left in a process.
func sayWays(m *messages, pid int, ways []string) {
	slices.Sort(ways)
	for _, why := range slices.Compact(ways) {
		m.say("%s", hitsLine(pid, why))
	}
}

// tracedLine says of a process whose session lets go of it (--let-go) why it is traced; ""
// is the reason where it isn't.
func tracedLine(pid int, why string) string {
	if why == "" {
		return fmt.Sprintf("process %d is let go of: nothing traces it while nothing changes", pid)
	}
	return fmt.Sprintf("process %d stays traced for now: %s", pid, why)
}

// hitsLine says which way the hits of jumps go that were left in a process; why is the
// reason why they take locked instructions, "" where they don't.
func hitsLine(pid int, why string) string {
	if why == "" {
		return fmt.Sprintf("hits of the detached probes in process %d are taken in restartable sequences", pid)
	}
	return fmt.Sprintf("hits of the detached probes in process %d take locked instructions: %s", pid, why)
}

// appendSites appends the places of a process; titled puts a comment above
// them that names it. width is the terminal's, 0 where there is none.
func appendSites(dst []byte, sites []output.Site, o *listOptions, titled bool, width int) []byte {
	if titled && o.form == output.Text && len(sites) > 0 {
		dst = fmt.Appendf(dst, "# process %d\n", sites[0].PID)
	}
	for i := range sites {
		if o.form == output.JSON {
			dst = output.AppendSiteJSON(dst, &sites[i])
		} else {
			dst = output.AppendSiteWithin(dst, &sites[i], width)
		}
	}
	return dst
}

// appendDefinition appends the object of a kept definition.
func appendDefinition(dst []byte, def *fetch.Def, disabled bool) []byte {
	return output.AppendDefinitionJSON(dst, &output.Definition{
		Group: def.Group, Event: def.Event, Kind: def.Kind.String(),
		Place: def.Place.String(), Text: def.String(), Disabled: disabled,
	})
}
