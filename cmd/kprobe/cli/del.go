package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
)

type delOptions struct {
	patterns []kept.Pattern
	defs     []*fetch.Def // deletions in the language's own form
}

const delLong = `Forgets kept definitions: all places of the events that match. A GLOB is a shell
pattern for events: EVENT, or GRP/EVENT. The kernel's forms are taken too:
-:GRP/EVENT for an event and -:GRP/EVENT PLACE for one of its places.

A pattern that matches nothing is an error, and so is an event that kprobe is
tracing at the moment: nothing is forgotten then.`

const delExample = `  kprobe del open
  kprobe del 'web/*'
  kprobe del -:web/handle
  kprobe del '-:web/handle ./server:handle+4'`

type delRun func(ctx context.Context, d *Deps, o *delOptions) error

func newDelCmd(d *Deps, run delRun) *cobra.Command {
	c := &cobra.Command{
		Use:     "del GLOB…",
		Short:   "forget kept definitions",
		Long:    delLong,
		Example: delExample,
		RunE: func(c *cobra.Command, args []string) error {
			o := &delOptions{}
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
			return run(c.Context(), d, o)
		},
		ValidArgsFunction: completeEvents(d),
	}
	return c
}

func runDel(ctx context.Context, d *Deps, o *delOptions) error {
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
