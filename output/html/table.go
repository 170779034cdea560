package html

import (
	"fmt"
	"html"
	"strings"

	"kprobe/output/report"
)

// maxRows bounds the table.
const maxRows = 2000

// column is one of the table's: what a cell shows, and the number that it sorts by.
type column struct {
	name string
	cell func(r, was *report.Row) (text string, v float64)
}

func number(of func(r *report.Row) uint64) func(r, _ *report.Row) (string, float64) {
	return func(r, _ *report.Row) (string, float64) { return grouped(of(r)), float64(of(r)) }
}

func times(of func(r *report.Row) uint64) func(r, _ *report.Row) (string, float64) {
	return func(r, _ *report.Row) (string, float64) {
		if r.Calls+r.Open == 0 {
			return "", -1
		}
		return report.Time(of(r)), float64(of(r))
	}
}

// before makes a column of the earlier recording.
func before(c column) column {
	of := c.cell
	return column{"was", func(_, was *report.Row) (string, float64) { return of(was, nil) }}
}

// change is how the total has changed.
func change(r, was *report.Row) (string, float64) {
	const most = 1e300
	switch {
	case was.Calls+was.Open+was.Hits == 0:
		return "new", most
	case r.Calls+r.Open+r.Hits == 0:
		return "gone", -most
	}
	a, b := float64(r.Total), float64(was.Total)
	if b == 0 {
		a, b = float64(r.Hits), float64(was.Hits)
	}
	if b == 0 {
		return "", 0
	}
	return fmt.Sprintf("%+.1f %%", 100*(a/b-1)), a/b - 1
}

func (p *Page) columns(rows []*report.Row) (out []column) {
	var hits, timed, open, left bool
	for _, r := range rows {
		hits, timed = hits || r.Hits > 0, timed || r.Calls > 0 || r.Open > 0
		open, left = open || r.Open > 0, left || r.Left > 0
	}
	add := func(c column, compared bool) {
		out = append(out, c)
		if compared && p.Old != nil {
			out = append(out, before(c))
		}
	}
	if w := p.Report.Weight; w != "" {
		add(column{quotePlain(w), number(func(r *report.Row) uint64 { return r.Weight })}, true)
	}
	if hits {
		add(column{"hits", number(func(r *report.Row) uint64 { return r.Hits })}, true)
	}
	if timed {
		add(column{"calls", number(func(r *report.Row) uint64 { return r.Calls })}, true)
		add(column{"total", times(func(r *report.Row) uint64 { return r.Total })}, true)
		if p.Report.Nested {
			add(column{"self", times(func(r *report.Row) uint64 { return r.Self })}, false)
		}
		add(column{"avg", times(func(r *report.Row) uint64 { return r.Times.Average() })}, true)
		add(column{"p50", times(func(r *report.Row) uint64 { return r.Times.Percentile(50) })}, false)
		add(column{"p99", times(func(r *report.Row) uint64 { return r.Times.Percentile(99) })}, true)
		add(column{"max", times(func(r *report.Row) uint64 { return r.Times.Max })}, false)
	}
	if open {
		add(column{"open", number(func(r *report.Row) uint64 { return r.Open })}, false)
	}
	if left {
		add(column{"no return", number(func(r *report.Row) uint64 { return r.Left })}, false)
	}
	if p.Old != nil {
		add(column{"change", change}, false)
	}
	return out
}

// table is the page's table, which needs no script to be read.
func (p *Page) table(note func(string, ...any)) string {
	rows := p.Report.Rows()
	was := map[string]*report.Row{}
	if p.Old != nil {
		is := map[string]bool{}
		for _, r := range rows {
			is[r.Name] = true
		}
		for _, r := range p.Old.Rows() {
			was[r.Name] = r
			if !is[r.Name] {
				rows = append(rows, &report.Row{Name: r.Name})
			}
		}
	}
	all := append(p.Report.Rows(), values(was)...)
	cols := p.columns(all)
	if len(rows) > maxRows {
		note("Table: of %s rows the first %s are shown; kprobe report without --html has all.", grouped(uint64(len(rows))), grouped(maxRows))
		rows = rows[:maxRows]
	}
	var b strings.Builder
	head := func(name, kind string) {
		fmt.Fprintf(&b, `<th scope="col"%s><button type="button">%s</button></th>`, kind, html.EscapeString(name))
	}
	b.WriteString("<thead><tr>")
	head(p.Report.By, "")
	for _, c := range cols {
		head(c.name, ` class="n"`)
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for _, r := range rows {
		old := was[r.Name]
		if old == nil {
			old = &report.Row{}
		}
		fmt.Fprintf(&b, `<tr><th scope="row">%s</th>`, html.EscapeString(quotePlain(r.Name)))
		for _, c := range cols {
			text, v := c.cell(r, old)
			fmt.Fprintf(&b, `<td class="n" data-v="%v">%s</td>`, v, html.EscapeString(text))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>")
	return b.String()
}

func values(m map[string]*report.Row) (out []*report.Row) {
	for _, r := range m {
		out = append(out, r)
	}
	return out
}
