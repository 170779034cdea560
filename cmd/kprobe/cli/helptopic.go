package cli

import (
	_ "embed"
	"strings"

	"github.com/spf13/cobra"
)

// EventsPage is the text of kprobe-events(5), the language of definitions, in
// the form of the help texts: a line that begins with "# " is a section's
// title, and "NAME :: TEXT" is an entry of a list.
//
//go:embed events.txt
var EventsPage string

// newEventsTopic is what kprobe help events prints. It is no command: nothing
// runs, and it has no manual page of its own name in section 1.
func newEventsTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "events",
		Short: "the language of definitions",
		Long:  topicText(EventsPage),
	}
}

// topicIndent is how far the text of an entry is indented.
const topicIndent = "      "

// topicText lays a page of the manual out for a terminal that may be on a
// machine without the manual.
func topicText(page string) string {
	var b strings.Builder
	entry := "" // the text of the entry that is being read
	end := func() {
		if entry != "" {
			fold(&b, entry, topicIndent, helpWidth)
			entry = ""
		}
	}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		title, isTitle := strings.CutPrefix(line, "# ")
		name, text, isEntry := strings.Cut(line, " :: ")
		switch {
		case isTitle:
			end()
			b.WriteString(title + "\n")
		case isEntry && !strings.HasPrefix(line, " "):
			end()
			b.WriteString("  " + name + "\n")
			entry = text
		case entry != "" && line != "" && !strings.HasPrefix(line, "  "):
			entry += " " + line
		default:
			end()
			b.WriteString(line + "\n")
		}
	}
	end()
	return strings.Trim(b.String(), "\n")
}

// fold writes a text in lines of at most width columns, each indented. A word
// that is longer has a line of its own.
func fold(b *strings.Builder, text, indent string, width int) {
	column := 0
	for _, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteString("\n")
}
