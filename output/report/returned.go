package report

import "kprobe/output/calls"

// Returned implements calls.Returner: a call that was counted as left has returned.
func (r *Report) Returned(c *calls.Call, at uint64, again bool) error {
	counted := *c
	counted.Leave, counted.Out = at, nil
	late := c.Leave - at // not told yet
	if again {
		late = 0
	}
	in, _ := c.In.(note)
	out, _ := c.Out.(note)
	row := r.rowOf(&counted)
	total := late // that its row gets
	switch {
	case row != nil:
		row.Left--
		row.Times.Grow(at-c.Entry, c.Leave-c.Entry)
	default: // its value came with the return
		if row = r.rowOf(c); row == nil {
			break
		}
		row.Times.Add(c.Leave - c.Entry)
		row.Calls = row.Times.Count
		row.Self += at - c.Entry
		total += at - c.Entry
	}
	if row != nil {
		row.Self += late
		row.Total += r.total(c, total)
		if r.byValue() {
			r.nested.grow(c, row, total)
		}
	}
	switch {
	case r.Weight == "" && !r.Stacks:
		r.add(r.path(c), 0, late)
	case r.Weight != "" && !r.Stacks && out.weighs && !in.weighs:
		r.add(r.path(c), 1, out.weight)
		if row != nil {
			row.Weight = sum(row.Weight, out.weight)
		}
	}
	return nil
}
