package main

import (
	"bytes"
	"strings"
)

// body turns text into man's macros (man(7)). Its form is that of the help
// texts: paragraphs with blank lines between them; a line that begins with "# "
// is a section's title; lines that begin with two blanks are printed as they
// are; a line "NAME :: text" is an entry of a list.
func body(b *bytes.Buffer, text string) {
	verbatim, open := false, false
	begins := bytes.HasPrefix(lastLine(b.Bytes()), []byte(".SH "))
	end := func() {
		if verbatim {
			b.WriteString(".fi\n.RE\n")
			verbatim = false
		}
	}
	// A section begins with a paragraph by itself.
	paragraph := func() {
		if !begins {
			b.WriteString(".PP\n")
		}
		begins = false
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		switch {
		case line == "":
			end()
			open = false
		case strings.HasPrefix(line, "# "):
			end()
			section(b, line[2:])
			open = true
		case strings.HasPrefix(line, "  "):
			if !verbatim {
				paragraph()
				b.WriteString(".RS 4\n.nf\n")
				verbatim = true
			}
			b.WriteString(escapeLine(strings.TrimPrefix(line, "  ")) + "\n")
		default:
			end()
			if name, rest, ok := strings.Cut(line, " :: "); ok {
				begins = false
				b.WriteString(".TP\n\\fB" + escape(name) + "\\fR\n" + escapeLine(rest) + "\n")
				open = true
				continue
			}
			if !open {
				paragraph()
				open = true
			}
			b.WriteString(escapeLine(line) + "\n")
		}
	}
	end()
}

// escape makes roff print text as it is.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(s)
}

// escapeLine escapes a line that begins at the left, where a dot or a quote
// would be a request.
func escapeLine(s string) string {
	e := escape(s)
	if strings.HasPrefix(e, ".") || strings.HasPrefix(s, "'") {
		return `\&` + e
	}
	return e
}

// lastLine gives the last line of a text, without its end.
func lastLine(text []byte) []byte {
	text = bytes.TrimSuffix(text, []byte("\n"))
	return text[bytes.LastIndexByte(text, '\n')+1:]
}
