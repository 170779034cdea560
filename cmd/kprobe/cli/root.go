package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `kprobe traces running programs with the kernel's kprobes, brought to processes:
name a place in a program or a library, say what to fetch there, and every time
the program comes by, a line is printed. Nothing is compiled in, nothing needs
the kernel's help, and the program is left as it was.

A definition is one line in the syntax of the kernel's kprobe_events:

  p[:[GRP/]EVENT] PLACE [NAME=ARG…]     when PLACE is reached
  r[MAX][:[GRP/]EVENT] FUNC [ARG…]      when FUNC returns

A PLACE alone is short for "p PLACE".`

const rootExample = `  kprobe trace 'p:dir libc:opendir path=+0($arg1):string' -- ls /
  kprobe trace -p 4711 'r:got libc:malloc size=$arg1:u64 at=$retval'
  kprobe profile -t 10s -p 4711 'libc:pthread_*'
  kprobe show -p 4711 libc:openat
  kprobe check 4711`

// New builds the command tree.
func New(d *Deps) *cobra.Command {
	m := &messages{w: d.Err}
	root := &cobra.Command{
		Use:           "kprobe",
		Short:         "kernel probes for processes",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			return misuse("name a command: %s", strings.Join(commandNames(c), ", "))
		},
	}
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(d.In)
	root.SetOut(d.Out)
	root.SetErr(d.Err)
	root.AddCommand(
		newTraceCmd(d, m, runTrace),
		newProfileCmd(d, m, runProfile),
		newAddCmd(d, m, runAdd),
		newListCmd(d, runList),
		newDelCmd(d, runDel),
		newEnableCmd(d, runEnable),
		newDisableCmd(d, runEnable),
		newShowCmd(d, m, runShow),
		newFunctionsCmd(d, m, runFunctions),
		newCheckCmd(d, runCheck),
		newBenchCmd(d, m, runBench),
		newCompletionCmd(d),
	)
	for _, c := range root.Commands() {
		if c.Flags().Lookup("format") != nil {
			// Fails only for a flag that does not exist.
			_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	return root
}

// Execute runs kprobe with the arguments that follow its name and returns the
// exit status. Everything that went wrong has been said when it returns.
func Execute(ctx context.Context, args []string, d *Deps) int {
	root := New(d)
	root.SetArgs(deletions(args))
	c, err := root.ExecuteContextC(ctx)
	m := &messages{w: d.Err}
	var status statusError
	if err != nil && !errors.As(err, &status) {
		m.fail(err)
		var failed *failure
		if !errors.As(err, &failed) {
			m.write("kprobe: hint: " + strings.TrimPrefix(c.CommandPath()+" --help", " ") + " says how\n")
		}
	}
	if !errors.Is(err, errLeftBehind) {
		d.Link.End()
	}
	return exitStatus(err)
}

// deletions makes the words before -- that delete an event, -:GRP/EVENT, no
// flags in the eyes of the parser of flags: definitions may begin with a blank.
func deletions(args []string) []string {
	out := slices.Clone(args)
	for i, arg := range out {
		if arg == "--" {
			break
		}
		if strings.HasPrefix(arg, "-:") {
			out[i] = " " + arg
		}
	}
	return out
}

// unknownCommand answers a first word that is no command.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return misuse("there is no command %q; the closest: %s", args[0], strings.Join(near, ", "))
	}
	return misuse("there is no command %q; there are %s", args[0], strings.Join(commandNames(c), ", "))
}

func commandNames(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			names = append(names, sub.Name())
		}
	}
	return names
}
