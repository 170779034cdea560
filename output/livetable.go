package output

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// Rate is an event's counters and the present rate of its hits.
type Rate struct {
	results.Stats
	PerSecond float64
}

// Rates compares the counters of events with those of an earlier moment, seconds ago. For an
// event that did not exist then, or whose counters began anew, the rate is that of its
// counters.
func Rates(now, before []results.Stats, seconds float64) []Rate {
	old := map[string]uint64{}
	for i := range before {
		old[countersOf(&before[i])] = before[i].Hits
	}
	out := make([]Rate, len(now))
	for i := range now {
		out[i].Stats = now[i]
		hits := now[i].Hits
		if was := old[countersOf(&now[i])]; was <= hits {
			hits -= was
		}
		if seconds > 0 {
			out[i].PerSecond = float64(hits) / seconds
		}
	}
	return out
}

func eventName(s *results.Stats) string { return quote.Plain(s.Event.Group + "/" + s.Event.Name) }

// placeName is the place of counters that are one's, with its file where it is
// not the program's.
func placeName(s *results.Stats) string {
	if s.Module == "" {
		return quote.Plain(s.Place)
	}
	return quote.Plain(s.Module + ":" + s.Place)
}

// countersOf tells one's counters from those of others.
func countersOf(s *results.Stats) string { return eventName(s) + " " + placeName(s) }

// Total adds up the counters of events, as one more called "total".
func Total(stats []results.Stats) results.Stats {
	t := results.Stats{Event: &results.Event{Name: "total"}}
	for i := range stats {
		t.Count(stats[i].Counts())
		t.Places += stats[i].Places
	}
	return t
}

// LiveTable is the picture of a live profile.
type LiveTable struct {
	Title string
	Rates []Rate
	// Total adds a line of sums.
	Total bool
	// Each says that the counters are those of places.
	Each bool

	limited bool // an event has hits beyond its limit: there is a column for them
}

// The narrowest bar and event name that are worth their columns, and the
// widest bar.
const (
	minBar  = 8
	maxBar  = 60
	minName = 12
	gap     = 2 // blanks between columns
)

// Lines draws the table for a terminal: the fastest events first, as many as
// fit, with a bar for the rate where there is room.
func (t *LiveTable) Lines(width, height int) ([]string, error) {
	rates := slices.Clone(t.Rates)
	slices.SortStableFunc(rates, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Hits, a.Hits), cmp.Compare(countersOf(&a.Stats), countersOf(&b.Stats)))
	})
	top := 0.0
	if len(rates) > 0 {
		top = rates[0].PerSecond
	}
	more := 0
	// The cursor's line, the title, the header, and below the total and the rest.
	if room := max(height-5, 1); len(rates) > room {
		more = len(rates) - room
		rates = rates[:room]
	}
	numbers := []string{"HITS", "HITS/S", "FILTERED", "LOST", "NMISSED"}
	t.limited = slices.ContainsFunc(t.Rates, func(r Rate) bool { return r.Limited > 0 })
	if t.limited {
		numbers = slices.Insert(numbers, 3, "LIMITED")
	}
	table := Table{Columns: t.columns(numbers...)}
	for i := range rates {
		table.Rows = append(table.Rows, t.row(&rates[i]))
	}
	if t.Total {
		all := Rate{Stats: Total(statsOf(t.Rates))}
		for i := range t.Rates {
			all.PerSecond += t.Rates[i].PerSecond
		}
		table.Rows = append(table.Rows, t.row(&all))
	}
	bar := fit(&table, width)
	if bar >= minBar {
		table.Columns = append(table.Columns, Column{"", Left})
		for i := range table.Rows {
			cell := ""
			if i < len(rates) && top > 0 {
				cell = strings.Repeat("#", int(rates[i].PerSecond/top*float64(min(bar, maxBar))+0.5))
			}
			table.Rows[i] = append(table.Rows[i], cell)
		}
	}
	var b bytes.Buffer
	if err := table.Render(&b); err != nil {
		return nil, err
	}
	lines := append([]string{quote.Plain(t.Title)}, strings.Split(strings.TrimRight(b.String(), "\n"), "\n")...)
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines, nil
}

func statsOf(rates []Rate) []results.Stats {
	out := make([]results.Stats, len(rates))
	for i := range rates {
		out[i] = rates[i].Stats
	}
	return out
}

// columns are those that say whose counters a line has, and of numbers.
func (t *LiveTable) columns(numbers ...string) []Column {
	out := []Column{{"EVENT", Left}}
	if t.Each {
		out = []Column{{"PLACE", Left}, {"EVENT", Left}}
	}
	for _, n := range numbers {
		out = append(out, Column{n, Right})
	}
	return out
}

// called says whose counters they are, as columns has it.
func (t *LiveTable) called(s *results.Stats) []string {
	name := quote.Plain(s.Event.Name)
	if s.Event.Group != "" {
		name = eventName(s)
	}
	out := []string{name}
	switch {
	case t.Each && s.Place == "": // the total
		out = []string{name, ""}
	case t.Each:
		out = []string{placeName(s), name}
	}
	if s.Disabled {
		out[0] += " [DISABLED]"
	}
	return out
}

func (t *LiveTable) row(r *Rate) []string {
	number := func(v uint64) string { return strconv.FormatUint(v, 10) }
	row := append(t.called(&r.Stats), number(r.Hits), strconv.FormatFloat(r.PerSecond, 'f', 0, 64), number(r.Filtered))
	if t.limited {
		row = append(row, number(r.Limited))
	}
	return append(row, number(r.Lost), number(r.Missed))
}

// fit shortens the names so that the table is no wider than the terminal, leaves
// out the last columns where that is not enough, and returns the columns that are
// left at its right.
func fit(t *Table, width int) int {
	widest := t.widths(t.Rows)
	numbers := 0
	for _, w := range widest[1:] {
		numbers += w + gap
	}
	// A column that is cut would be read as another number.
	for n := len(t.Columns) - 1; n > 1 && numbers+min(widest[0], minName) > width; n-- {
		numbers -= widest[n] + gap
		t.Columns = t.Columns[:n]
		for i := range t.Rows {
			t.Rows[i] = t.Rows[i][:n]
		}
	}
	name := max(min(widest[0], width-numbers), minName)
	for i := range t.Rows {
		t.Rows[i][0] = middle(t.Rows[i][0], name)
	}
	return width - name - numbers - gap
}
