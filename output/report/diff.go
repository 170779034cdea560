package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"kprobe/internal/quote"
	"kprobe/output"
)

// named are rows by their names.
func named(list []*Row) map[string]*Row {
	out := map[string]*Row{}
	for _, row := range list {
		out[row.Name] = row
	}
	return out
}

// timed reports whether the row has calls, and so times.
func (r *Row) timed() bool { return r.Calls > 0 || r.Open > 0 }

// Diff writes how this report's rows differ from those of an earlier one. If neither has calls, there are
// no times to compare.
func (r *Report) Diff(w io.Writer, old *Report, human bool) error {
	rows, olds := r.Rows(), old.Rows()
	now, before := named(rows), named(olds)
	timed := slices.ContainsFunc(rows, (*Row).timed) || slices.ContainsFunc(olds, (*Row).timed)
	unit, first := "/ns", "# "+r.By
	if human {
		unit, first = "", r.By
	}
	heads := []string{"hits", "was", "change"}
	if timed {
		heads = []string{"calls", "was", "total" + unit, "was" + unit, "avg" + unit, "was" + unit, "p99" + unit, "was" + unit, "total"}
	}
	t := output.Table{Columns: []output.Column{{Name: first, Align: output.Left}}}
	for _, name := range heads {
		t.Columns = append(t.Columns, output.Column{Name: name, Align: output.Right})
	}
	for _, o := range olds {
		if now[o.Name] == nil {
			rows = append(rows, &Row{Name: o.Name})
		}
	}
	time := func(n uint64) string { return strconv.FormatUint(n, 10) }
	if human {
		time = Time
	}
	for _, row := range rows {
		was := before[row.Name]
		change := ""
		switch {
		case was == nil:
			change, was = "new", &Row{}
		case now[row.Name] == nil:
			change = "gone"
		case was.Total > 0:
			change = percent(row.Total, was.Total)
		case was.Hits > 0 && !was.timed():
			change = percent(row.Hits, was.Hits)
		}
		cells := []string{quote.Plain(row.Name), strconv.FormatUint(row.Calls+row.Hits, 10), strconv.FormatUint(was.Calls+was.Hits, 10)}
		if timed {
			a, b := &row.Times, &was.Times
			for _, v := range [][2]uint64{{row.Total, was.Total}, {a.Average(), b.Average()}, {a.Percentile(99), b.Percentile(99)}} {
				cells = append(cells, time(v[0]), time(v[1]))
			}
		}
		t.Rows = append(t.Rows, append(cells, change))
	}
	t.Fit(0, r.Width)
	return t.Render(w)
}

// percent is by how much a number differs from what it was.
func percent(now, was uint64) string {
	return fmt.Sprintf("%+.1f%%", 100*(float64(now)/float64(was)-1))
}
