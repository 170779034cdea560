package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is how wide help is, in columns.
const helpWidth = 80

// OptionGroup is options of a command that belong together, under a title. The
// title is empty where the command has so few that they need none.
type OptionGroup struct {
	Title   string
	Options []*pflag.Flag
}

// groupTitles are the titles of options, in the order of help and manual pages.
var groupTitles = []struct {
	title string
	names []string
}{
	{"Target", []string{"pid", "exec", "name", "wait", "follow", "kill-on-exit"}},
	{"Injection", []string{"return", "errno", "delay", "every"}},
	{"Probes", []string{"file", "pending", "maxactive", "no-optimize", "limit", "trigger", "strsize", "calls", "args", "compress", "no-debuginfod"}},
	{"Tree", []string{"below", "not", "depth", "slower", "failed", "auto", "now"}},
	{"Counts", []string{"hist", "lines", "interval", "total", "each", "latency", "metrics", "html"}},
	{"End", []string{"events", "duration", "expire"}},
	{"Tracing", []string{"detach", "keep", "let-go", "ring"}},
}

// lastGroup is the title of options that are in no other group.
const lastGroup = "Output and messages"

// ungrouped is the most options that a command lists without titles.
const ungrouped = 12

// Options gives the visible options of a command by groups.
func Options(c *cobra.Command) []OptionGroup {
	c.InitDefaultHelpFlag()
	groups := map[string][]*pflag.Flag{}
	var all []*pflag.Flag
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		all = append(all, f)
		title := groupOf(f.Name)
		if f.Name == "limit" && c.Flags().Lookup("every") != nil {
			title = "Injection"
		}
		groups[title] = append(groups[title], f)
	})
	if len(all) <= ungrouped {
		return []OptionGroup{{Options: all}}
	}
	var out []OptionGroup
	add := func(title string) {
		if len(groups[title]) > 0 {
			out = append(out, OptionGroup{title, groups[title]})
		}
	}
	for _, g := range groupTitles {
		add(g.title)
	}
	add(lastGroup)
	return out
}

func groupOf(flag string) string {
	for _, g := range groupTitles {
		for _, name := range g.names {
			if name == flag {
				return g.title
			}
		}
	}
	return lastGroup
}

// Description cuts a command's help into what comes before the options and the
// sections behind them, each of which begins with a line "# TITLE".
func Description(c *cobra.Command) (text, sections string) {
	text, sections, ok := strings.Cut(c.Long, "\n# ")
	if ok {
		sections = "# " + sections
	}
	return strings.TrimRight(text, "\n"), sections
}

// showHelp is what --help and kprobe help print of a command.
func showHelp(c *cobra.Command, _ []string) {
	var b strings.Builder
	text, sections := Description(c)
	b.WriteString(topicText(text) + "\n")
	if c.Runnable() {
		if c.HasParent() {
			b.WriteString("\nUsage:\n  " + strings.TrimRight(c.CommandPath()+" "+Arguments(c), " ") + "\n")
		} else {
			b.WriteString("\nUsage:\n  " + c.Name() + " COMMAND [ARG…]\n")
		}
		if c.HasAvailableSubCommands() {
			b.WriteString("\nCommands:\n")
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() || sub.Name() == "help" {
					fmt.Fprintf(&b, "  %-*s %s\n", c.NamePadding(), sub.Name(), sub.Short)
				}
			}
		}
		for _, g := range Options(c) {
			title := "Options"
			if g.Title != "" {
				title = g.Title
			}
			b.WriteString("\n" + title + ":\n")
			for _, f := range g.Options {
				writeOption(&b, f)
			}
		}
	}
	if sections != "" {
		b.WriteString("\n" + topicText(sections) + "\n")
	}
	if c.HasExample() {
		b.WriteString("\nExamples:\n" + c.Example + "\n")
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nkprobe COMMAND --help explains a command.\n")
	}
	// What nobody reads need not be said.
	_, _ = c.OutOrStdout().Write([]byte(b.String()))
}

// optionColumn is where the explanations of options begin.
const optionColumn = 26

// OptionText gives an option as help and manual pages have it: its names, its value
// and its explanation, with the default where there is one that means something.
func OptionText(f *pflag.Flag) (short, long, value, usage string) {
	if f.Shorthand != "" {
		short = "-" + f.Shorthand
	}
	long = "--" + f.Name
	value, usage = pflag.UnquoteUsage(f)
	switch {
	case value == "":
		return short, long, value, usage
	case f.NoOptDefVal != "":
		value = "[=" + value + "]"
	default:
		value = " " + value
	}
	if def := strings.Trim(f.DefValue, "[]"); def != "" && def != "0" && def != "0s" {
		usage += " (default " + def + ")"
	}
	return short, long, value, usage
}

// Arguments is what follows a command's name on its line.
func Arguments(c *cobra.Command) string {
	_, words, _ := strings.Cut(c.Use, " ")
	if options, rest, ok := strings.Cut(words, "[flags]"); ok {
		return options + "[OPTION…]" + rest
	}
	return words
}

// writeOption writes an option as GNU tools do: its explanation beside it, or
// below where it is too long for that.
func writeOption(b *strings.Builder, f *pflag.Flag) {
	short, long, value, usage := OptionText(f)
	name := "      " + long + value
	if short != "" {
		name = "  " + short + ", " + long + value
	}
	var text strings.Builder
	fold(&text, usage, strings.Repeat(" ", optionColumn), helpWidth)
	if len([]rune(name)) > optionColumn-2 {
		b.WriteString(name + "\n" + text.String())
		return
	}
	b.WriteString(name + text.String()[len([]rune(name)):])
}
