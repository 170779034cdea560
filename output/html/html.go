// Package html turns a recording into one page: a flame graph, a timeline of threads, a heat
// map of latencies and a table. A page needs no network and no other files. Its size is bounded
// whatever the recording: what has no room is left out, and the page says what and how much.
package html

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"kprobe/internal/quote"
	"kprobe/output/recording"
	"kprobe/output/report"
	"kprobe/probe/results"
)

//go:embed page
var files embed.FS

// scripts are run in this order.
var scripts = []string{"base.js", "flame.js", "timeline.js", "heat.js", "table.js", "start.js"}

// Page is what a page is made of.
type Page struct {
	Name   string // of the recording
	In     *recording.Reader
	Report *report.Report
	Calls  *Collector
	// Old, if set, is what is compared with.
	Old     *report.Report
	OldName string
}

// content is what the page's scripts get.
type content struct {
	Timed   bool      `json:"timed"`            // flame graph's values are nanoseconds
	Weight  string    `json:"weight,omitempty"` // or the sums of this value
	Bytes   bool      `json:"bytes,omitempty"`  // which are bytes
	Diff    bool      `json:"diff"`
	Names   []string  `json:"names"`
	Flame   []uint64  `json:"flame"` // flameNumbers of each node, callers first
	Span    [2]int64  `json:"span"`
	Threads []thread  `json:"threads"`
	Heat    *heatData `json:"heat,omitempty"`
}

// names numbers texts.
type names struct {
	list []string
	of   map[string]int
}

func (n *names) number(s string) int {
	if i, ok := n.of[s]; ok {
		return i
	}
	if n.of == nil {
		n.of = map[string]int{}
	}
	i := len(n.list)
	n.of[s] = i
	n.list = append(n.list, s)
	return i
}

// text is the text of a number.
func (n *names) text(i int) string { return n.list[i] }

// plain are the texts as they can be shown.
func (n *names) plain() []string {
	out := make([]string, len(n.list))
	for i, s := range n.list {
		out[i] = quotePlain(s)
	}
	return out
}

// quotePlain is what can be shown of a program's text, in one line.
func quotePlain(s string) string { return strings.ToValidUTF8(quote.Plain(s), "\ufffd") }

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	p.losses(note)
	var all names
	c := content{Timed: p.Report.Timed(), Weight: p.Report.Weight, Bytes: report.Bytes(p.Report.Weight), Diff: p.Old != nil}
	c.Flame = p.flame(&all, note)
	c.Threads, c.Span = p.Calls.timeline(&all, note)
	c.Heat = p.Calls.heat.data(p.Calls, note)
	c.Names = all.plain()
	table := p.table(note)
	// What is escaped so has no <, and ends no element.
	text, err := json.Marshal(&c)
	if err != nil {
		return err
	}
	page, style, script := read("page.html"), read("style.css"), ""
	for _, name := range scripts {
		script += read(name)
	}
	var list strings.Builder
	for _, n := range notes {
		list.WriteString("<li>" + html.EscapeString(n) + "</li>\n")
	}
	b := bufio.NewWriter(w)
	// One pass: what is put in isn't looked through again.
	_, err = strings.NewReplacer(
		"{{title}}", html.EscapeString(quotePlain(p.title())),
		"{{facts}}", p.facts(),
		"{{notes}}", list.String(),
		"{{table}}", table,
		"{{data}}", string(text),
		"{{style}}", style, "{{style-hash}}", hash(style),
		"{{script}}", script, "{{script-hash}}", hash(script),
	).WriteString(b, page)
	if err != nil {
		return err
	}
	return b.Flush()
}

func read(name string) string {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is in the program
	}
	return string(text)
}

// hash names a text in a content security policy.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (p *Page) title() string {
	if p.Old != nil {
		return p.Name + " beside " + p.OldName
	}
	return p.Name
}

// facts are terms and what they are, of the head of the page.
func (p *Page) facts() string {
	var b strings.Builder
	add := func(term, text string) {
		if text != "" {
			b.WriteString("<div><dt>" + term + "</dt><dd>" + html.EscapeString(quotePlain(text)) + "</dd></div>\n")
		}
	}
	h := &p.In.Header
	if h.Wall != 0 {
		add("Recorded", time.Unix(0, h.Wall).UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	add("On", h.Host)
	if len(h.PIDs) > 0 {
		add("Processes", shorten(strings.Trim(fmt.Sprint(h.PIDs), "[]")))
	}
	add("Command", shorten(strings.Join(h.Command, " ")))
	add("Definitions", shorten(strings.Join(slices.Compact(slices.Clone(h.Definitions)), "; ")))
	add("Hits", grouped(p.Report.Hits))
	add("Over", report.Time(p.Report.Last-p.Report.First))
	return b.String()
}

// shorten keeps a fact to a line or two.
func shorten(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + fmt.Sprintf("… (%d more bytes)", len(s)-most)
}

// losses notes what the recording itself lacks.
func (p *Page) losses(note func(string, ...any)) {
	end := p.In.End
	if end == nil {
		note("The recording was cut off: what comes before is shown.")
	} else {
		sum := end.Sum()
		if end.Overwritten > 0 {
			note("%s older hits were overwritten before.", grouped(end.Overwritten))
		}
		if sum.Lost > 0 {
			note("%s hits were lost, %.1f %% of all: calls and times are of the others.", grouped(sum.Lost), 100*float64(sum.Lost)/float64(sum.Lost+p.Report.Hits))
		}
		if sum.Limited > 0 {
			note("%s hits were beyond --limit, and not recorded: calls and times are of the others.", grouped(sum.Limited))
		}
		if sum.Missed > 0 {
			note("%s calls were missed (%s).", grouped(sum.Missed), results.WhyMissed)
		}
		if sum.Filtered > 0 {
			note("%s hits were refused by filters.", grouped(sum.Filtered))
		}
	}
	if n := p.Report.Tracks.Lates; n > 0 {
		note("Of %s calls the entry is missing.", grouped(n))
	}
	if n := p.Report.Deep; n > 0 {
		note("%s calls lie deeper than %d: their paths in the flame graph begin with the innermost %[2]d.", grouped(n), report.MaxDepth)
	}
	if n := p.Report.Weightless; n > 0 {
		note("%s hits have a %q that is negative, unreadable or not a number: they weigh nothing.", grouped(n), p.Report.Weight)
	}
	if n := p.Report.Tracks.Cut; n > 0 {
		note("%s calls may lack their callers: record with --calls to follow so many.", grouped(n))
	}
}

// grouped is a number with commas.
func grouped(n uint64) string {
	s := fmt.Sprint(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
