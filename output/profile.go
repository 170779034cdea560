package output

import (
	"cmp"
	"io"
	"slices"
	"strconv"

	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// AppendProfile appends the counters of events in the form of the kernel's
// kprobe_profile file, "  %-44s %15lu %15lu": event, hits, misses. Of a place it
// is the event, a blank and the place. An event has its group before it if one of another group has
// the same name: the kernel's file shows both alike.
func AppendProfile(dst []byte, stats []results.Stats) []byte {
	groups := map[string]string{}
	shared := map[string]bool{}
	for i := range stats {
		e := stats[i].Event
		if group, known := groups[e.Name]; known && group != e.Group {
			shared[e.Name] = true
		}
		groups[e.Name] = e.Group
	}
	for i := range stats {
		s := &stats[i]
		dst = append(dst, ' ', ' ')
		start := len(dst)
		if shared[s.Event.Name] && s.Event.Group != "" {
			dst = append(dst, eventName(s)...)
		} else {
			dst = quote.AppendPlain(dst, s.Event.Name)
		}
		if s.Place != "" {
			dst = append(append(dst, ' '), placeName(s)...)
		}
		for len(dst)-start < 44 {
			dst = append(dst, ' ')
		}
		dst = appendPadded(append(dst, ' '), s.Hits, 15, ' ')
		dst = appendPadded(append(dst, ' '), s.Missed, 15, ' ')
		dst = append(dst, '\n')
	}
	return dst
}

// AppendMoment appends the line that stands above the counters of a moment,
// where they are printed more than once: seconds since the start.
func AppendMoment(dst []byte, seconds float64) []byte {
	dst = strconv.AppendFloat(append(dst, '#', ' '), seconds, 'f', 3, 64)
	return append(dst, '\n')
}

// AppendRatesJSON appends one object for each event, as AppendProfileJSON
// does, with the seconds since the start and the rate.
func AppendRatesJSON(dst []byte, rates []Rate, seconds float64) []byte {
	for i := range rates {
		dst = appendProfile(dst, &rates[i].Stats)
		dst = strconv.AppendFloat(append(dst, `,"time":`...), seconds, 'f', 3, 64)
		dst = strconv.AppendFloat(append(dst, `,"per_second":`...), rates[i].PerSecond, 'f', 1, 64)
		dst = append(dst, '}', '\n')
	}
	return dst
}

// AppendProfileJSON appends one object for each event.
func AppendProfileJSON(dst []byte, stats []results.Stats) []byte {
	for i := range stats {
		dst = append(appendProfile(dst, &stats[i]), '}', '\n')
	}
	return dst
}

// appendProfile appends an object without its end.
func appendProfile(dst []byte, s *results.Stats) []byte {
	dst = quote.AppendJSON(append(dst, `{"type":"profile","group":`...), s.Event.Group)
	dst = quote.AppendJSON(append(dst, `,"event":`...), s.Event.Name)
	if s.Place == "" {
		dst = appendCount(append(dst, `,"places":`...), uint64(s.Places))
	} else {
		dst = quote.AppendJSON(append(dst, `,"place":`...), s.Place)
		if s.Module != "" {
			dst = quote.AppendJSON(append(dst, `,"module":`...), s.Module)
		}
	}
	dst = appendCount(append(dst, `,"hits":`...), s.Hits)
	dst = appendCount(append(dst, `,"nmissed":`...), s.Missed)
	dst = appendCount(append(dst, `,"filtered":`...), s.Filtered)
	dst = appendCount(append(dst, `,"lost":`...), s.Lost)
	if s.Limited > 0 {
		dst = appendCount(append(dst, `,"limited":`...), s.Limited)
	}
	if s.Unfinished > 0 {
		dst = appendCount(append(dst, `,"unfinished":`...), s.Unfinished)
	}
	if s.Age > 0 {
		dst = appendCount(append(dst, `,"armed_ns":`...), uint64(s.Age))
	}
	if s.Disabled {
		dst = append(dst, `,"disabled":true`...)
	}
	return dst
}

// ProfileTable draws the counters of events, or of places, for a person.
func ProfileTable(w io.Writer, stats []results.Stats) error {
	t := LiveTable{Each: slices.ContainsFunc(stats, func(s results.Stats) bool { return s.Place != "" })}
	limited := slices.ContainsFunc(stats, func(s results.Stats) bool { return s.Limited > 0 })
	numbers := []string{"HITS", "FILTERED", "LOST", "NMISSED"}
	if limited {
		numbers = slices.Insert(numbers, 2, "LIMITED")
	}
	if !t.Each {
		numbers = append([]string{"PLACES"}, numbers...)
	}
	table := Table{Columns: t.columns(numbers...)}
	for i := range stats {
		s := &stats[i]
		row := t.called(s)
		if !t.Each {
			row = append(row, strconv.Itoa(s.Places))
		}
		values := []uint64{s.Hits, s.Filtered, s.Lost, s.Missed}
		if limited {
			values = slices.Insert(values, 2, s.Limited)
		}
		for _, v := range values {
			row = append(row, strconv.FormatUint(v, 10))
		}
		table.Rows = append(table.Rows, row)
	}
	return table.Render(w)
}

// Reached returns the counters of places that were reached, the most hits first.
func Reached(stats []results.Stats) []results.Stats {
	out := slices.DeleteFunc(slices.Clone(stats), func(s results.Stats) bool { return s.Hits == 0 && s.Missed == 0 })
	slices.SortStableFunc(out, func(a, b results.Stats) int { return cmp.Compare(b.Hits, a.Hits) })
	return out
}
