package report

import (
	"fmt"
	"io"
	"strconv"

	"kprobe/internal/quote"
	"kprobe/output"
)

// Table writes the rows for a person: times with units where human, else in
// nanoseconds, under headings that begin with #.
func (r *Report) Table(w io.Writer, human bool) error {
	rows := r.Rows()
	var hits, timed, open, left bool
	for _, row := range rows {
		hits, timed = hits || row.Hits > 0, timed || row.timed()
		open, left = open || row.Open > 0, left || row.Left > 0
	}
	head := func(name string) output.Column { return output.Column{Name: name, Align: output.Right} }
	unit := "/ns"
	first := "# " + r.By
	if human {
		unit, first = "", r.By
	}
	t := output.Table{Columns: []output.Column{{Name: first, Align: output.Left}}}
	if r.Weight != "" {
		t.Columns = append(t.Columns, head(quote.Plain(r.Weight)))
	}
	if hits {
		t.Columns = append(t.Columns, head("hits"))
	}
	if timed {
		t.Columns = append(t.Columns, head("calls"), head("total"+unit))
		if r.Nested {
			t.Columns = append(t.Columns, head("self"+unit))
		}
		for _, name := range []string{"avg", "p50", "p99", "max"} {
			t.Columns = append(t.Columns, head(name+unit))
		}
	}
	if open {
		t.Columns = append(t.Columns, head("open"))
	}
	if left {
		t.Columns = append(t.Columns, head("no return"))
	}
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	time := number
	if human {
		time = Time
	}
	for _, row := range rows {
		cells := []string{quote.Plain(row.Name)}
		if r.Weight != "" {
			cells = append(cells, number(row.Weight))
		}
		if hits {
			cells = append(cells, number(row.Hits))
		}
		if timed {
			s := &row.Times
			cells = append(cells, number(row.Calls), time(row.Total))
			if r.Nested {
				cells = append(cells, time(row.Self))
			}
			cells = append(cells, time(s.Average()), time(s.Percentile(50)), time(s.Percentile(99)), time(s.Max))
		}
		if open {
			cells = append(cells, number(row.Open))
		}
		if left {
			cells = append(cells, number(row.Left))
		}
		t.Rows = append(t.Rows, cells)
	}
	t.Fit(0, r.Width)
	return t.Render(w)
}

// Time is a number of nanoseconds with three digits or so and a unit.
func Time(ns uint64) string {
	f := float64(ns)
	switch {
	case ns < 1000:
		return strconv.FormatUint(ns, 10) + " ns"
	case f < 999.5e3:
		return fmt.Sprintf("%.3g us", f/1e3)
	case f < 999.5e6:
		return fmt.Sprintf("%.3g ms", f/1e6)
	}
	return fmt.Sprintf("%.2f s", f/1e9)
}

// AppendJSON appends an object for each row.
func (r *Report) AppendJSON(dst []byte) []byte {
	field := func(name string, v uint64) {
		dst = append(append(append(dst, `,"`...), name...), `":`...)
		if v > 1<<53 { // JSON's readers take numbers as doubles
			dst = strconv.AppendQuote(dst, strconv.FormatUint(v, 10))
			return
		}
		dst = strconv.AppendUint(dst, v, 10)
	}
	for _, row := range r.Rows() {
		dst = quote.AppendJSON(append(dst, `{"type":"row","by":`...), r.By)
		dst = quote.AppendJSON(append(dst, `,"name":`...), row.Name)
		field("hits", row.Hits)
		if r.Weight != "" {
			field("weight", row.Weight)
		}
		field("calls", row.Calls)
		field("open", row.Open)
		field("no_return", row.Left)
		if row.Calls+row.Open > 0 {
			field("total", row.Total)
			field("self", row.Self)
		}
		if row.Calls > 0 {
			field("avg", row.Times.Average())
			field("p50", row.Times.Percentile(50))
			field("p99", row.Times.Percentile(99))
			field("max", row.Times.Max)
		}
		dst = append(dst, '}', '\n')
	}
	return dst
}
