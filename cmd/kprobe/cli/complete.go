package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/symbols"
)

// completeTarget completes -p, -x and the words of a session: definitions.
func completeTarget(c *cobra.Command, d *Deps) {
	completeFlags(c, d)
	c.ValidArgsFunction = func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		out, directive := completePlaces(c, word)
		if len(out) == 0 {
			// It may be the command behind --, which cobra does not tell from a
			// word before it: offer files.
			return nil, cobra.ShellCompDirectiveDefault
		}
		return out, directive
	}
}

// completeWhere completes -p, -x and a place or pattern.
func completeWhere(c *cobra.Command, d *Deps) {
	completeFlags(c, d)
	c.ValidArgsFunction = func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return completePlaces(c, word)
	}
}

// completeFlags completes those of -p and -x. Registering fails only for a
// flag that does not exist, which the tests of completion would show.
func completeFlags(c *cobra.Command, d *Deps) {
	_ = c.RegisterFlagCompletionFunc("pid", completePIDs(d))
	_ = c.MarkFlagFilename("exec")
}

// completePIDs offers the processes with their names.
func completePIDs(d *Deps) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		entries, err := os.ReadDir(d.Proc.Root)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, e := range entries {
			if _, err := strconv.Atoi(e.Name()); err != nil || !strings.HasPrefix(e.Name(), word) {
				continue
			}
			comm, err := os.ReadFile(filepath.Join(d.Proc.Root, e.Name(), "comm"))
			if err != nil {
				continue
			}
			out = append(out, e.Name()+"\t"+strings.TrimSpace(string(comm)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// maxCompletions bounds what is offered: a shell that lists more than this is
// of no help, and slow.
const maxCompletions = 2000

// completePlaces offers the functions of the file of -x, or of the process of
// -p: those of the program itself and the names of its libraries, and behind
// such a name and a colon the functions of the library.
func completePlaces(c *cobra.Command, word string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if path, err := c.Flags().GetString("exec"); err == nil && path != "" {
		f, err := symbols.OpenFile(path)
		if err != nil {
			return nil, directive
		}
		return functionsWith(f, "", word), directive
	}
	pids, ok := c.Flags().Lookup("pid").Value.(*pidList)
	if !ok || len(*pids) == 0 {
		return nil, directive
	}
	space, err := symbols.OpenProcess((*pids)[0], nil)
	if err != nil {
		return nil, directive
	}
	module, _ := splitModule(word)
	if module != "" {
		for _, m := range space.FindModule(module) {
			return functionsWith(m.File, module+":", word), directive
		}
		return nil, directive
	}
	var out []string
	for i, m := range space.Modules() {
		if i == 0 {
			out = functionsWith(m.File, "", word)
		} else if strings.HasPrefix(m.Name, word) {
			out = append(out, m.Name+":")
		}
	}
	return out, directive | cobra.ShellCompDirectiveNoSpace
}

// functionsWith gives the functions whose names, behind a prefix of their own,
// begin with the word.
func functionsWith(f *symbols.File, prefix, word string) []string {
	var out []string
	for _, name := range functionNames(f.Funcs()) {
		if strings.HasPrefix(prefix+name, word) {
			if out = append(out, prefix+name); len(out) == maxCompletions {
				break
			}
		}
	}
	return out
}
