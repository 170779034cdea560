package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

const completionLong = `Prints the completion script of a shell. Install it so:

  bash: kprobe completion bash > /etc/bash_completion.d/kprobe
  zsh:  kprobe completion zsh > "${fpath[1]}/_kprobe"
  fish: kprobe completion fish > ~/.config/fish/completions/kprobe.fish`

// shells are the shells that have a completion script.
func shells() []string { return []string{"bash", "zsh", "fish"} }

func newCompletionCmd(d *Deps) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "print a shell's completion script",
		Long:      completionLong,
		ValidArgs: shells(),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return misuse("name a shell: %s", strings.Join(shells(), ", "))
			}
			root := c.Root()
			switch args[0] {
			case "bash":
				return fail(root.GenBashCompletionV2(d.Out, true))
			case "zsh":
				return fail(root.GenZshCompletion(d.Out))
			case "fish":
				return fail(root.GenFishCompletion(d.Out, true))
			}
			return misuse("no completion for the shell %q: %s", args[0], strings.Join(shells(), ", "))
		},
	}
}
