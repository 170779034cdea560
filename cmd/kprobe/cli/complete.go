package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/internal/quote"
	"kprobe/symbols"
)

// completeTarget completes -p, -x and the words of a session: places and the
// names of kept events.
func completeTarget(c *cobra.Command, d *Deps) {
	completeFlags(c, d)
	c.ValidArgsFunction = func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		out, directive := completePlaces(c, word)
		events, _ := completeEvents(d)(c, nil, word)
		for _, name := range events {
			if strings.HasPrefix(name, word) {
				out = append(out, name)
			}
		}
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
		pids, err := procfs.FS(d.Proc.Root).Processes()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, pid := range pids {
			name := strconv.Itoa(pid)
			if !strings.HasPrefix(name, word) {
				continue
			}
			comm, err := procfs.FS(d.Proc.Root).Process(pid).Comm()
			if err != nil {
				continue
			}
			if _, err := os.Readlink(filepath.Join(d.Proc.Root, name, "exe")); errors.Is(err, fs.ErrNotExist) {
				continue // a thread of the kernel
			}
			out = append(out, name+"\t"+quote.Plain(strings.TrimSpace(comm)))
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
	if path := c.Flags().Lookup("exec").Value.String(); path != "" {
		f, err := symbols.OpenFile(path)
		if err != nil {
			return nil, directive
		}
		if strings.HasPrefix(word, "%") {
			return probesWith([]*symbols.File{f}, "", word), directive
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
	if module, begin, ok := strings.Cut(word, "%"); ok {
		modules := space.Modules()
		if module != "" {
			modules = space.FindModule(strings.TrimSuffix(module, ":"))
		}
		var files []*symbols.File
		for _, m := range modules {
			files = append(files, m.File)
		}
		return probesWith(files, module, "%"+begin), directive
	}
	module, _ := fetch.CutModule(word)
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
		} else if strings.HasPrefix(m.Name, word) && typable(m.Name) {
			out = append(out, m.Name+":")
		}
	}
	return out, directive | cobra.ShellCompDirectiveNoSpace
}

// typable reports whether a name can be shown and typed. What can't isn't
// offered: a shell would show it as it is.
func typable(name string) bool { return quote.Plain(name) == name }

// functionsWith gives the functions whose names, behind a prefix of their own,
// begin with the word. Only they are looked at: a shell waits.
func functionsWith(f *symbols.File, prefix, word string) []string {
	begin, ok := strings.CutPrefix(word, prefix)
	if !ok && !strings.HasPrefix(prefix, word) {
		return nil
	}
	if !ok {
		begin = ""
	}
	var some []symbols.Func
	for _, s := range f.NamesWith(begin, maxCompletions) {
		some = append(some, symbols.Func{Symbol: s, Start: s.Vaddr, End: s.Vaddr + symbols.Vaddr(s.Size)})
	}
	if len(some) == 0 && len(f.NamesWith("", 1)) == 0 {
		// It may have no symbols, and functions all the same.
		some = f.Funcs()
	}
	var out []string
	for _, name := range functionNames(some) {
		if strings.HasPrefix(name, begin) && typable(name) {
			if out = append(out, prefix+name); len(out) == maxCompletions {
				break
			}
		}
	}
	return out
}
