package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"kprobe/output"
	"kprobe/probe"
)

type showOptions struct {
	where
	place string
	vars  bool
	lines bool
	form  output.Form
}

const showLong = `Lists the instructions of a function: offset, bytes, disassembly, and whether a
probe there would be a jump or a breakpoint, and why. A '>' marks the
instruction at PLACE. PLACE may be a shell pattern for functions; '*' is the
whole file. kprobe show only reads.

--vars lists instead the variables that a definition can name at PLACE: their
types, and where they are at that instruction or why they can't be fetched.

--lines lists the source text of a function. Lines with a number can be probed,
as FUNC:LINE. PLACE may be FUNC:FROM-TO, or FILE.c:FROM-TO for lines of a file.`

const showExample = `  kprobe show -p 4711 libc:openat
  kprobe show -x ./server work+0x1a
  kprobe show --json -x ./server '*' | jq -r .probe | sort | uniq -c
  kprobe show --vars -x ./server server.c:812
  kprobe show --lines -x ./server handle_request`

type showRun func(ctx context.Context, d *Deps, m *messages, o *showOptions) error

func newShowCmd(d *Deps, m *messages, run showRun) *cobra.Command {
	o := &showOptions{}
	c := &cobra.Command{
		Use:     "show [-x FILE | -p PID] PLACE",
		Short:   "list a function's instructions and how each can be probed",
		Long:    showLong,
		Example: showExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return misuse("name one place, such as libc:openat or main+0x1a")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.place = args[0]
			if o.vars && o.lines {
				return misuse("--vars and --lines cannot be used together")
			}
			if err := o.check(); err != nil {
				return err
			}
			return run(c.Context(), d, m, o)
		},
	}
	o.register(c, d)
	c.Flags().BoolVar(&o.vars, "vars", false, "list the variables that can be fetched at PLACE")
	c.Flags().BoolVar(&o.lines, "lines", false, "list the source lines that can be probed")
	addFormat(c.Flags(), &o.form)
	return c
}

func runShow(ctx context.Context, d *Deps, m *messages, o *showOptions) error {
	if o.lines {
		return showLines(ctx, d, m, o)
	}
	at, err := place(o.place)
	if err != nil {
		return fail(err)
	}
	space, err := o.find(ctx, d, at, o.vars || at.File != "")
	if err != nil {
		return err
	}
	if o.vars {
		return showVars(d, space, at, o)
	}
	w := output.NewWriter(d.Out)
	var failed error // to write, which closed judges
	var text []byte
	n := 0
	err = d.Engine.Inspect(space, at, func(l *probe.Listing) error {
		if o.form == output.JSON {
			text = output.AppendListingJSON(text[:0], l)
			_, failed = w.Write(text)
		} else {
			if n++; n > 1 {
				_, _ = w.Write([]byte("\n")) // the next write tells of a failure
			}
			failed = output.ListingText(w, l, d.width())
		}
		return failed
	})
	if err != nil && failed == nil {
		_ = w.Close() // nothing was written
		return fail(fmt.Errorf("show %s: %w", o.place, err))
	}
	return closed(w, failed)
}
