package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/facts"
	"kprobe/output"
)

type checkOptions struct {
	pid  int
	form output.Form
}

const checkLong = `Says whether a process can be probed, and what stands in the way, each with its
remedy. It only reads /proc: it neither stops nor traces the process. The exit
status is 1 if the process can't be probed.`

const checkExample = `  kprobe check 4711
  kprobe check --json 4711 | jq 'select(.state == "problem")'`

type checkRun func(ctx context.Context, d *Deps, o *checkOptions) error

func newCheckCmd(d *Deps, run checkRun) *cobra.Command {
	o := &checkOptions{}
	var pids pidList
	c := &cobra.Command{
		Use:     "check PID",
		Short:   "say whether a process can be probed",
		Long:    checkLong,
		Example: checkExample,
		RunE: func(c *cobra.Command, args []string) error {
			for _, arg := range args {
				pid, err := strconv.Atoi(arg)
				if err != nil || pid <= 0 {
					return misuse("%s", pidError(arg))
				}
				pids = append(pids, pid)
			}
			if len(pids) != 1 {
				return misuse("name one process")
			}
			o.pid = pids[0]
			return run(c.Context(), d, o)
		},
		ValidArgsFunction: completePIDs(d),
	}
	c.Flags().VarP(&pids, "pid", "p", "check this process (same as the argument)")
	_ = c.RegisterFlagCompletionFunc("pid", completePIDs(d))
	addFormat(c.Flags(), &o.form)
	return c
}

func runCheck(_ context.Context, d *Deps, o *checkOptions) error {
	found := d.Proc.Check(o.pid)
	w := output.NewWriter(d.Out)
	var text []byte
	for i := range found {
		if o.form == output.JSON {
			text = output.AppendFactJSON(text, &found[i])
		} else {
			text = output.AppendFact(text, &found[i])
		}
	}
	_, err := w.Write(text)
	if err := closed(w, err); err != nil {
		return err
	}
	if facts.Blocked(found) {
		return statusError(ExitFailure)
	}
	return nil
}
