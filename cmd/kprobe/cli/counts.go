package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/output/html"
	"kprobe/output/report"
	"kprobe/output/spread"
	"kprobe/probe"
	"kprobe/probe/results"
)

// countsPage is --html of commands that count: a page of what was counted, written at the end.
type countsPage struct {
	name  string
	file  *os.File
	defs  []string
	begun time.Time
}

func (p *countsPage) register(f *pflag.FlagSet, of string) {
	f.StringVar(&p.name, "html", "", "with "+of+": write a page with graphs to `FILE`, for a browser")
}

// apart refuses that the page goes where the command's output does.
func (p *countsPage) apart(output string) error {
	return eachItsFile(written{"-o", output}, written{"--html", p.name})
}

// create makes the file, so that a page that can't be written is known of before anything
// is counted. Without the flag it does nothing, as the other methods.
func (p *countsPage) create() (err error) {
	if p.name == "" {
		return nil
	}
	if p.file, err = os.Create(p.name); err != nil {
		return fail(fmt.Errorf("html: %w", err))
	}
	return nil
}

// begin notes what is counted, and since when.
func (p *countsPage) begin(d *Deps, defs []*fetch.Def) {
	_, p.begun = d.Now()
	for _, def := range defs[:min(len(defs), 100)] {
		p.defs = append(p.defs, def.Text)
	}
}

// write writes the page: fill puts in what was counted.
func (p *countsPage) write(d *Deps, title string, stats []probe.Stats, fill func(*html.Counts)) error {
	if p.file == nil {
		return nil
	}
	_, now := d.Now()
	page := &html.Counts{Title: title}
	if !p.begun.IsZero() {
		page.Facts = append(page.Facts,
			html.Fact{Term: "Counted", Text: p.begun.UTC().Format("2006-01-02 15:04:05 UTC")},
			html.Fact{Term: "Over", Text: report.Time(uint64(max(now.Sub(p.begun), 0)))})
	}
	if host, err := os.Hostname(); err == nil {
		page.Facts = append(page.Facts, html.Fact{Term: "On", Text: host})
	}
	page.Facts = append(page.Facts, html.Fact{Term: "Definitions", Text: strings.Join(p.defs, "; ")})
	sum := output.Sum(stats)
	if sum.Missed > 0 {
		page.Notes = append(page.Notes, fmt.Sprintf("%s calls were missed (%s).", grouped(int(sum.Missed)), results.WhyMissed))
	}
	if sum.Lost > 0 {
		page.Notes = append(page.Notes, fmt.Sprintf("%s hits were lost.", grouped(int(sum.Lost))))
	}
	fill(page)
	err := errors.Join(page.Write(p.file), p.file.Close())
	if p.file = nil; err != nil {
		return fail(fmt.Errorf("html: %w", err))
	}
	return nil
}

// timesOf are the times of a latency profile, for a page.
func timesOf(sink *output.Latency, stats []probe.Stats) (out []html.Times) {
	type key struct{ group, event, fn string }
	cells := map[key][]spread.Cell{}
	sink.Each(func(e *probe.Event, fn string, took *spread.Spread) {
		k := key{e.Group, e.Name, fn}
		for c := range took.Cells {
			cells[k] = append(cells[k], c)
		}
	})
	for _, c := range sink.Calls(stats, false) {
		out = append(out, html.Times{Calls: c, Cells: cells[key{c.Group, c.Event, c.Func}]})
	}
	return out
}
