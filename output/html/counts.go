package html

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"math/bits"
	"strings"

	"kprobe/output"
	"kprobe/output/report"
	"kprobe/output/spread"
)

// Counts is a page of how often values came: of the times that functions' calls took, or
// of histograms. It has no scripts.
type Counts struct {
	Title string
	Facts []Fact
	Notes []string
	// Times are those of functions, the one with the most time first.
	Times []Times
	// Tables are histograms.
	Tables []output.HistTable
}

// Fact is a term and what it is.
type Fact struct{ Term, Text string }

// Times is how long a function's calls took.
type Times struct {
	output.Calls
	Cells []spread.Cell
}

const (
	mostFigures = 300 // functions that are drawn
	mostBars    = 500 // entries of a histogram that are shown
)

// Write writes the page.
func (p *Counts) Write(w io.Writer) error {
	var facts, notes, parts strings.Builder
	for _, f := range p.Facts {
		if f.Text != "" {
			fmt.Fprintf(&facts, "<div><dt>%s</dt><dd>%s</dd></div>\n", html.EscapeString(f.Term), shown(shorten(f.Text)))
		}
	}
	list := p.Notes
	if n := len(p.Times) - mostFigures; n > 0 {
		list = append(list, fmt.Sprintf("%s functions with less time are in the table only.", grouped(uint64(n))))
	}
	if len(p.Times) > 0 {
		p.table(&parts)
		p.figures(&parts)
	}
	for i := range p.Tables {
		if n := histogram(&parts, &p.Tables[i]); n != "" {
			list = append(list, n)
		}
	}
	for _, n := range list {
		notes.WriteString("<li>" + html.EscapeString(n) + "</li>\n")
	}
	style := read("style.css") + read("counts.css")
	b := bufio.NewWriter(w)
	_, err := strings.NewReplacer(
		"{{title}}", shown(p.Title), "{{facts}}", facts.String(), "{{notes}}", notes.String(), "{{parts}}", parts.String(),
		"{{style}}", style, "{{style-hash}}", hash(style),
	).WriteString(b, read("counts.html"))
	if err != nil {
		return err
	}
	return b.Flush()
}

// shown is a program's text for a page.
func shown(s string) string { return html.EscapeString(quotePlain(s)) }

// table has a row for each function.
func (p *Counts) table(b *strings.Builder) {
	b.WriteString("<section aria-labelledby=\"table-head\"><h2 id=\"table-head\">Functions</h2>\n<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">function</th>")
	lost := false
	for i := range p.Times {
		lost = lost || p.Times[i].Lost > 0
	}
	columns := []string{"calls", "total", "avg", "min", "p50", "p99", "max"}
	if lost {
		columns = append(columns, "lost")
	}
	for _, name := range columns {
		b.WriteString("<th scope=\"col\" class=\"n\">" + name + "</th>")
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for i := range p.Times {
		t := &p.Times[i]
		name := shown(t.Func)
		if i < mostFigures && t.Count > 0 {
			name = fmt.Sprintf("<a href=\"#f%d\">%s</a>", i, name)
		}
		b.WriteString("<tr><th scope=\"row\">" + name + "</th>")
		cells := []string{grouped(t.Count)}
		for _, ns := range []uint64{t.Total, t.Average, t.Min, t.P50, t.P99, t.Max} {
			text := ""
			if t.Count > 0 {
				text = report.Time(ns)
			}
			cells = append(cells, text)
		}
		if lost {
			cells = append(cells, grouped(t.Lost))
		}
		for _, c := range cells {
			b.WriteString("<td class=\"n\">" + c + "</td>")
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody></table></div></section>\n")
}

// The measures of a figure, in its own units.
const (
	figureWidth  = 1100.0
	figureHeight = 130.0
	figureTop    = 16.0 // above the bars
	figureBase   = 108.0
)

// scale is where a time stands in all figures: by its logarithm.
type scale struct{ low, high float64 }

func (s scale) x(ns float64) float64 {
	return (math.Log2(max(ns, 0.5)) - s.low) / (s.high - s.low) * figureWidth
}

// figures draw how many calls took how long: the area of bars is the number of calls.
func (p *Counts) figures(b *strings.Builder) {
	least, most := uint64(math.MaxUint64), uint64(0)
	for i := range p.Times {
		if list := bars(p.Times[i].Cells); len(list) > 0 {
			least, most = min(least, list[0].from), max(most, list[len(list)-1].to)
		}
	}
	if least > most {
		return
	}
	s := scale{math.Floor(math.Log2(max(float64(least), 0.5))), math.Log2(float64(most)) + 0.05}
	b.WriteString("<section aria-labelledby=\"spread-head\"><h2 id=\"spread-head\">How long calls took</h2>\n<p class=\"help\">Left are short calls, right long ones, on the same scale for all functions; the area of the bars is the number of calls. Lines are the times that half of the calls, and 99 of 100, did not exceed.</p>\n")
	for i := range p.Times[:min(len(p.Times), mostFigures)] {
		if t := &p.Times[i]; len(t.Cells) > 0 {
			t.figure(b, i, s)
		}
	}
	b.WriteString("</section>\n")
}

// group is a bar: numbers from from up to to.
type group struct {
	from, to uint64
	count    uint64
}

// bars joins cells into groups of an eighth of an octave.
func bars(cells []spread.Cell) (out []group) {
	for _, c := range cells {
		g := group{from: c.From, to: c.From + 1}
		if k := bits.Len64(c.From) - 1; k >= 3 {
			width := uint64(1) << (k - 3)
			g.from = c.From / width * width
			g.to = g.from + width
		}
		if n := len(out); n > 0 && out[n-1].from == g.from {
			out[n-1].count += c.Count
			continue
		}
		g.count = c.Count
		out = append(out, g)
	}
	return out
}

func (t *Times) figure(b *strings.Builder, n int, s scale) {
	fmt.Fprintf(b, "<figure id=\"f%d\"><figcaption><h3>%s</h3><span>%s calls</span><span>avg %s</span><span>p50 %s</span><span>p99 %s</span><span>max %s</span></figcaption>\n",
		n, shown(t.Func), grouped(t.Count), report.Time(t.Average), report.Time(t.P50), report.Time(t.P99), report.Time(t.Max))
	fmt.Fprintf(b, "<svg class=\"spread\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s: half of the calls took up to %s, 99 of 100 up to %s, the longest %s\">\n",
		figureWidth, figureHeight, shown(t.Func), report.Time(t.P50), report.Time(t.P99), report.Time(t.Max))
	list := bars(t.Cells)
	highest := 0.0
	density := func(g group) float64 {
		return float64(g.count) / (math.Log2(float64(g.to)) - math.Log2(max(float64(g.from), 0.5)))
	}
	for _, g := range list {
		highest = max(highest, density(g))
	}
	for ns := 1.0; ns < math.Exp2(s.high); ns *= 10 {
		x := s.x(ns)
		if x < 0 || x > figureWidth-30 {
			continue
		}
		fmt.Fprintf(b, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/><text x=\"%.1f\" y=\"%.0f\">%s</text>\n", x, x, figureTop, figureBase+4, x+3, figureHeight-6, report.Time(uint64(ns)))
	}
	for _, g := range list {
		from, to := s.x(float64(g.from)), s.x(float64(g.to))
		height := max(density(g)/highest*(figureBase-figureTop), 1)
		fmt.Fprintf(b, "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%s: %s calls, %.2g %%</title></rect>\n",
			from, figureBase-height, max(to-from-0.6, 0.8), height, within(g), grouped(g.count), 100*float64(g.count)/float64(t.Count))
	}
	fmt.Fprintf(b, "<line class=\"axis\" x1=\"0\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", figureWidth, figureBase, figureBase)
	last := -100.0
	for _, m := range []struct {
		name string
		ns   uint64
	}{{"p50", t.P50}, {"p99", t.P99}} {
		x := s.x(float64(m.ns))
		at := x + 4
		if at > figureWidth-30 {
			at = x - 30
		}
		if at < last+28 { // it would lie over the one before
			at = last + 28
		}
		last = at
		fmt.Fprintf(b, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"2\" y2=\"%.0f\"/><text class=\"mark-text\" x=\"%.1f\" y=\"11\">%s</text>\n", x, x, figureBase, at, m.name)
	}
	b.WriteString("</svg></figure>\n")
}

// within is the range of a bar.
func within(g group) string {
	if g.to-g.from <= 1 {
		return report.Time(g.from)
	}
	return report.Time(g.from) + " to " + report.Time(g.to)
}

// histogram draws one: a row for each entry, with a bar. It says what is left out.
func histogram(b *strings.Builder, t *output.HistTable) (note string) {
	name := t.Group + "/" + t.Event
	entries := 0
	for i := range t.Rows {
		if t.Rows[i].Count > 0 {
			entries++
		}
	}
	fmt.Fprintf(b, "<section><h2>%s</h2>\n<p class=\"help\">%s: %s hits in %s entries", shown(name), shown(t.Trigger), grouped(t.Hits), grouped(uint64(entries)))
	if t.Dropped > 0 {
		fmt.Fprintf(b, "; %s more had values for which there was no room (size=N)", grouped(t.Dropped))
	}
	if t.Lost > 0 {
		fmt.Fprintf(b, "; %s of %s hits were lost", grouped(t.Lost), grouped(t.All))
	}
	b.WriteString(".</p>\n")
	if len(t.Rows) == 0 {
		b.WriteString("</section>\n")
		return ""
	}
	b.WriteString("<div class=\"wide\"><table>\n<thead><tr>")
	for _, k := range t.Keys {
		b.WriteString("<th scope=\"col\">" + shown(k) + "</th>")
	}
	b.WriteString("<th scope=\"col\" class=\"n\">hits</th><th scope=\"col\" class=\"n\">%</th><th scope=\"col\"></th>")
	for _, v := range t.Vals {
		b.WriteString("<th scope=\"col\" class=\"n\">" + shown(v) + "</th>")
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	most, rest := uint64(1), uint64(0)
	size := func(r *output.HistRow) uint64 {
		if t.By >= 0 {
			return r.Vals[t.By]
		}
		return r.Count
	}
	for i := range t.Rows {
		most = max(most, size(&t.Rows[i]))
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		if i >= mostBars {
			rest += r.Count
			continue
		}
		b.WriteString("<tr>")
		for _, k := range r.Keys {
			class := "value"
			switch {
			case numeric(k):
				class = "value num"
			case strings.Contains(k, "\n"):
				class = "value stack"
			}
			b.WriteString("<td class=\"" + class + "\">" + lines(k) + "</td>")
		}
		fmt.Fprintf(b, "<td class=\"n\">%s</td><td class=\"n\">%.1f</td><td class=\"part\"><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"bar\" width=\"%.2f\" height=\"10\"/></svg></td>",
			grouped(r.Count), 100*float64(r.Count)/float64(max(t.Hits, 1)), width(size(r), most))
		for _, v := range r.Vals {
			b.WriteString("<td class=\"n\">" + grouped(v) + "</td>")
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody></table></div></section>\n")
	if n := len(t.Rows) - mostBars; n > 0 {
		note = fmt.Sprintf("%s: %s more entries, with %s hits together, are left out.", quotePlain(name), grouped(uint64(n)), grouped(rest))
	}
	return note
}

// numeric reports whether a key is a number, or a range of numbers.
func numeric(s string) bool {
	return s != "" && strings.Trim(s, "0123456789-– ") == ""
}

// lines is a key with each of its lines as can be shown.
func lines(s string) string {
	list := strings.Split(s, "\n")
	for i := range list {
		list[i] = shown(list[i])
	}
	return strings.Join(list, "\n")
}

// width is that of a bar, of 100 for the most: what is there can be seen.
func width(n, most uint64) float64 {
	if n == 0 {
		return 0
	}
	return max(100*float64(n)/float64(most), 0.4)
}
