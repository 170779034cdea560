package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `kprobe brings kernel-style kprobes to user space: it traces running x86-64 Linux
programs. You name a place in a program or a library and the values to fetch
there. kprobe prints a line each time a thread reaches that place.

The program needs no preparation, and the kernel no support beyond ptrace. When
kprobe ends, the program runs on with its code as it was.

A definition is one line in the syntax of the kernel's kprobe_events:

  p[:[GRP/]EVENT] PLACE [NAME=ARG…]     hit when a thread reaches PLACE
  r[MAX][:[GRP/]EVENT] FUNC [ARG…]      hit when FUNC returns

A PLACE alone is short for "p PLACE". kprobe help events describes the language.`

const rootExample = `  kprobe trace 'p:dir libc:opendir path=+0($arg1):string' -- ls /
  kprobe trace -p 4711 'r:got libc:malloc size=$arg1:u64 at=$retval'
  kprobe profile -t 10s -p 4711 'libc:pthread_*'
  kprobe show -p 4711 libc:openat
  kprobe check 4711`

// New builds the command tree.
func New(d *Deps) *cobra.Command {
	m := &messages{w: d.messages()}
	var version, verbose bool
	root := &cobra.Command{
		Use:           "kprobe",
		Short:         "trace running programs with kernel-style probes",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			if version {
				return runVersion(d, verbose)
			}
			return misuse("name a command: %s", strings.Join(commandNames(c), ", "))
		},
	}
	root.Flags().BoolVarP(&version, "version", "V", false, "print the version; with -v, also what this machine supports")
	root.Flags().BoolVarP(&verbose, "verbose", "v", false, "with --version: print more")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(showHelp)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(d.In)
	root.SetOut(d.Out)
	root.SetErr(d.Err)
	root.AddCommand(
		newTraceCmd(d, m, runTrace),
		newProfileCmd(d, m, runProfile),
		newRecordCmd(d, m, runRecord),
		newSnapshotCmd(d, m, runSnapshot),
		newReportCmd(d, m, runReport),
		newGraphCmd(d, m, runGraph),
		newAddCmd(d, m, runAdd),
		newListCmd(d, m, runList),
		newDelCmd(d, m, runDel),
		newEnableCmd(d, runEnable),
		newDisableCmd(d, runEnable),
		newShowCmd(d, m, runShow),
		newFunctionsCmd(d, m, runFunctions),
		newInjectCmd(d, m, runTrace),
		newCheckCmd(d, runCheck),
		newBenchCmd(d, m, runBench),
		newCompletionCmd(d),
		newEventsTopic(),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultHelpFlag()
	root.Flags().Lookup("help").Usage = "print this help"
	for _, c := range root.Commands() {
		nameValues(c.Flags())
		c.InitDefaultHelpFlag()
		c.Flags().Lookup("help").Usage = "print this help"
		if c.Name() == "help" {
			c.Short = "explain a command, or events: the definition language"
		}
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
	c, err := root, commandFirst(root, args)
	if err == nil {
		c, err = root.ExecuteContextC(ctx)
	}
	m := &messages{w: d.messages()}
	var status statusError
	if err != nil && !errors.As(err, &status) {
		m.fail(err)
		var failed *failure
		if !errors.As(err, &failed) {
			m.write("kprobe: hint: see " + strings.TrimPrefix(c.CommandPath()+" --help", " ") + "\n")
		}
	}
	if !errors.Is(err, errLeftBehind) {
		d.Link.End()
	}
	d.Link.Drain()
	return exitStatus(err)
}

// messages gives where messages go.
func (d *Deps) messages() io.Writer { return d.Link.Messages(d.Err) }

// commandFirst refuses what begins with no command before the flags that follow
// it are looked at, which would be called unknown.
func commandFirst(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	first := args[0]
	if flag := strings.TrimLeft(first, "-"); flag != first {
		if c, _, err := root.Find([]string{"trace"}); err == nil && len(flag) > 0 && root.Flags().ShorthandLookup(flag[:1]) == nil &&
			(c.Flags().ShorthandLookup(flag[:1]) != nil && first[1] != '-' || c.Flags().Lookup(flag) != nil) {
			return misuse("name a command before %s, such as: kprobe trace %s", first, strings.Join(args, " "))
		}
		return nil
	}
	if first == "help" && len(args) > 1 {
		return helpTopic(root, args[1:])
	}
	if c, _, err := root.Find(args[:1]); (err != nil || c == root) && first != "help" && !strings.HasPrefix(first, "__") {
		return unknownCommand(root, args)
	}
	return nil
}

// helpTopic refuses help about what is neither a command nor a topic.
func helpTopic(root *cobra.Command, words []string) error {
	if strings.HasPrefix(words[0], "-") || words[0] == "help" {
		return nil
	}
	if c, rest, err := root.Find(words); err == nil && c != root && len(rest) == 0 {
		return nil
	}
	return misuse("no help on %s; there is %s, and events, the language of definitions", strings.Join(words, " "), strings.Join(commandNames(root), ", "))
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
	if args[0] == "version" {
		return misuse("no command version; kprobe --version prints the version")
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return misuse("no command %s; did you mean %s?", args[0], strings.Join(near, ", "))
	}
	return misuse("no command %s; there are %s", args[0], strings.Join(commandNames(c), ", "))
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
