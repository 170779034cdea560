package report

import (
	"cmp"
	"slices"
	"strconv"

	"kprobe/output/recording"
	"kprobe/output/spread"
)

// Row is what a table has of a function, a stack, a thread or a value.
type Row struct {
	Name  string
	Hits  uint64 // that are neither a call's entry nor its return
	Calls uint64 // that have returned, or were left
	Open  uint64 // that haven't
	Left  uint64 // of Calls: those whose return nobody saw
	Total uint64 // ns; calls within others of the same row are in those
	Self  uint64 // ns without the calls below, of those that were seen
	// Weight is the sum of the value that the report weighs by.
	Weight uint64
	Times  spread.Spread

	named uint64 // of a thread, since when it has the name
}

// Others is the name of the row of all that found none.
const Others = "(others)"

func (r *Report) at(name string) *Row {
	if r.row != nil && r.of == name {
		return r.row
	}
	row := r.rows[name]
	if row == nil {
		if len(r.rows) >= maxRows {
			name = Others
		}
		if row = r.rows[name]; row == nil {
			row = &Row{Name: name}
			r.rows[name] = row
		}
	}
	r.row, r.of = row, name
	return row
}

// atFunc is the row of a function.
func (r *Report) atFunc(p *recording.Place) *Row {
	row := r.byFunc[p]
	if row == nil {
		if row = r.at(frame(p)); len(r.byFunc) >= maxRows || r.byFunc == nil {
			r.byFunc = map[*recording.Place]*Row{}
		}
		r.byFunc[p] = row
	}
	return row
}

// atThread is the row of a thread, whatever it is called at the moment: many get their
// names a moment after they begin. The row has the last one.
func (r *Report) atThread(t *recording.Thread, time uint64) *Row {
	row := r.byThread[t]
	if row == nil {
		row = r.at("\x00" + strconv.Itoa(t.PID) + "/" + strconv.Itoa(t.TID))
		if len(r.byThread) >= maxRows || r.byThread == nil {
			r.byThread = map[*recording.Thread]*Row{}
		}
		r.byThread[t] = row
		if row.Name != Others && time >= row.named {
			row.Name, row.named = threadName(t), time
		}
	}
	return row
}

// Rows gives the rows, those with the most time, or hits, first.
func (r *Report) Rows() []*Row {
	out := make([]*Row, 0, len(r.rows))
	for _, row := range r.rows {
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(b.Total, a.Total), cmp.Compare(b.Calls+b.Hits, a.Calls+a.Hits), cmp.Compare(a.Name, b.Name))
	})
	return out
}
