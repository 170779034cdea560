package output

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/internal/quote"
)

// LatencyTable is the picture of functions' latencies for a person. Calls are
// in the order in which they are shown; one named "total" with no event is a
// sum and gets no bar.
type LatencyTable struct {
	Title string
	Calls []Calls
}

// minSteps is the least number of lines that a histogram is worth.
const minSteps = 4

// Lines draws the table for a terminal: as many functions as fit, with a bar
// for the time that all calls took together, and below them, where there is
// room, the histogram of the first.
func (t *LatencyTable) Lines(width, height int) ([]string, error) {
	calls := t.Calls
	more := 0
	// The cursor's line, the title, the header, and below the rest.
	if room := max(height-4, 1); len(calls) > room {
		more = len(calls) - room
		calls = calls[:room]
	}
	lines, err := latencies(calls, width)
	if err != nil {
		return nil, err
	}
	lines = append([]string{quote.Plain(t.Title)}, lines...)
	if more > 0 {
		return append(lines, fmt.Sprintf("and %d more", more)), nil
	}
	// A blank line and two of headings.
	if room := height - 1 - len(lines) - 3; room >= minSteps && len(calls) > 0 && calls[0].Count > 0 {
		steps, err := histogram(&calls[0], width, room)
		if err != nil {
			return nil, err
		}
		lines = append(lines, steps...)
	}
	return lines, nil
}

// All draws everything, as at the end of a profile: every function and every
// histogram.
func (t *LatencyTable) All(width int) ([]string, error) {
	lines, err := latencies(t.Calls, width)
	if err != nil {
		return nil, err
	}
	for i := range t.Calls {
		if t.Calls[i].Count == 0 {
			continue
		}
		steps, err := histogram(&t.Calls[i], width, len(t.Calls[i].Steps))
		if err != nil {
			return nil, err
		}
		lines = append(lines, steps...)
	}
	return lines, nil
}

// latencies is a line for each function below one of headings.
func latencies(calls []Calls, width int) ([]string, error) {
	table := Table{Columns: []Column{
		{"FUNCTION", Left}, {"CALLS", Right}, {"TOTAL", Right},
		{"MIN", Right}, {"AVG", Right}, {"P50", Right}, {"P99", Right}, {"MAX", Right},
	}}
	lost := anyLost(calls)
	if lost { // beside the number that it is missing from
		table.Columns = slices.Insert(table.Columns, 2, Column{"LOST", Right})
	}
	top := uint64(0)
	for i := range calls {
		c := &calls[i]
		row := []string{quote.Plain(c.Func), strconv.FormatUint(c.Count, 10)}
		if lost {
			row = append(row, c.lostShare())
		}
		for _, v := range [...]uint64{c.Total, c.Min, c.Average, c.P50, c.P99, c.Max} {
			cell := "-"
			if c.Count > 0 {
				cell = nanoseconds(v)
			}
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
		if c.Event != "" {
			top = max(top, c.Total)
		}
	}
	if bar := min(fit(&table, width), maxBar); bar >= minBar {
		table.Columns = append(table.Columns, Column{"", Left})
		for i := range calls {
			cell := ""
			if calls[i].Event != "" {
				cell = bars(calls[i].Total, top, bar)
			}
			table.Rows[i] = append(table.Rows[i], cell)
		}
	}
	return table.lines()
}

// histogram draws the steps of a function's latencies, at most room of them:
// those at the emptier end are left out.
func histogram(c *Calls, width, room int) ([]string, error) {
	table := Table{Columns: []Column{{"FROM", Right}, {"CALLS", Right}}}
	steps := c.Steps
	for len(steps) > room {
		if steps[0].Count < steps[len(steps)-1].Count {
			steps = steps[1:]
		} else {
			steps = steps[:len(steps)-1]
		}
	}
	top := uint64(0)
	for _, s := range steps {
		top = max(top, s.Count)
		table.Rows = append(table.Rows, []string{nanoseconds(s.From), strconv.FormatUint(s.Count, 10)})
	}
	if bar := min(fit(&table, width), maxBar); bar >= minBar {
		table.Columns = append(table.Columns, Column{"", Left})
		for i, s := range steps {
			table.Rows[i] = append(table.Rows[i], bars(s.Count, top, bar))
		}
	}
	lines, err := table.lines()
	if err != nil {
		return nil, err
	}
	title := quote.Plain(c.Func)
	if len(steps) < len(c.Steps) {
		title += fmt.Sprintf(" (%d of %d steps)", len(steps), len(c.Steps))
	}
	return append([]string{"", title}, lines...), nil
}

// bars is a bar of at most width columns; what is not 0 has one at least.
func bars(v, top uint64, width int) string {
	if v == 0 || top == 0 {
		return ""
	}
	return strings.Repeat("#", max(int(float64(v)/float64(top)*float64(width)+0.5), 1))
}

// lines renders the table line by line.
func (t *Table) lines() ([]string, error) {
	var b bytes.Buffer
	if err := t.Render(&b); err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines, nil
}
