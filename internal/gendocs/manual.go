package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kprobe/cmd/kprobe/cli"
)

// prose holds what is written by hand: NAME.txt is appended to the page of the
// command NAME, kprobe.txt to that of kprobe. kprobe-events(5) is cli.EventsPage.
//
//go:embed prose/*.txt
var prose embed.FS

// manuals makes a page for each command and the page of the language.
func manuals(root *cobra.Command) (map[string][]byte, error) {
	files := map[string][]byte{}
	commands := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			commands = append(commands, c)
		}
	}
	for _, c := range commands {
		text, err := page(c, commands)
		if err != nil {
			return nil, err
		}
		files["man/"+pageName(c)+".1"] = text
	}
	var b bytes.Buffer
	title(&b, "KPROBE-EVENTS", 5)
	section(&b, "NAME")
	b.WriteString("kprobe\\-events \\- the language of kprobe's definitions\n")
	body(&b, cli.EventsPage)
	section(&b, "SEE ALSO")
	b.WriteString(".BR kprobe (1),\n.BR kprobe\\-trace (1)\n")
	files["man/kprobe-events.5"] = b.Bytes()
	return files, nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page makes the manual page of a command.
func page(c *cobra.Command, all []*cobra.Command) ([]byte, error) {
	var b bytes.Buffer
	title(&b, strings.ToUpper(pageName(c)), 1)
	section(&b, "NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", escape(pageName(c)), escape(c.Short))
	section(&b, "SYNOPSIS")
	if c.HasParent() {
		fmt.Fprintf(&b, ".B %s\n%s\n", escape(c.CommandPath()), escape(cli.Arguments(c)))
	} else {
		fmt.Fprintf(&b, ".B %s\n.I COMMAND\n[ARG…]\n", escape(c.Name()))
	}
	section(&b, "DESCRIPTION")
	description, sections := cli.Description(c)
	body(&b, description)
	if !c.HasParent() {
		section(&b, "COMMANDS")
		for _, sub := range all[1:] {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", escape(pageName(sub)), escape(sub.Short))
		}
	}
	options(&b, c)
	body(&b, sections)
	name := "prose/" + c.Name() + ".txt"
	text, err := fs.ReadFile(prose, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	body(&b, string(text))
	if c.Example != "" {
		section(&b, "EXAMPLES")
		body(&b, c.Example)
	}
	section(&b, "SEE ALSO")
	var also []string
	for _, other := range all {
		if other != c {
			also = append(also, ".BR "+escape(pageName(other))+" (1)")
		}
	}
	also = append(also, ".BR kprobe\\-events (5)")
	b.WriteString(strings.Join(also, ",\n") + "\n")
	return b.Bytes(), nil
}

func title(b *bytes.Buffer, name string, number int) {
	fmt.Fprintf(b, ".\\\" Written by go run ./internal/gendocs; changes here are lost.\n")
	fmt.Fprintf(b, ".TH %s %d \"\" \"kprobe %s\" \"kprobe manual\"\n", escape(name), number, cli.Version)
}

func section(b *bytes.Buffer, name string) { fmt.Fprintf(b, ".SH %s\n", escape(name)) }

// options lists a command's own flags, by groups.
func options(b *bytes.Buffer, c *cobra.Command) {
	section(b, "OPTIONS")
	for _, g := range cli.Options(c) {
		if g.Title != "" {
			fmt.Fprintf(b, ".SS %s\n", escape(g.Title))
		}
		for _, f := range g.Options {
			option(b, f)
		}
	}
}

func option(b *bytes.Buffer, f *pflag.Flag) {
	short, long, value, usage := cli.OptionText(f)
	b.WriteString(".TP\n")
	if short != "" {
		fmt.Fprintf(b, "\\fB%s\\fR, ", escape(short))
	}
	fmt.Fprintf(b, "\\fB%s\\fR", escape(long))
	if value != "" {
		fmt.Fprintf(b, "%s\\fI%s\\fR", value[:1], escape(value[1:]))
	}
	fmt.Fprintf(b, "\n%s\n", escape(usage))
}
