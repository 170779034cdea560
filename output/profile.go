package output

import (
	"io"
	"strconv"

	"kprobe/probe"
)

// AppendProfile appends the counters of events in the form of the kernel's
// kprobe_profile file, "  %-44s %15lu %15lu": event, hits, misses.
func AppendProfile(dst []byte, stats []probe.Stats) []byte {
	for i := range stats {
		s := &stats[i]
		dst = append(dst, ' ', ' ')
		start := len(dst)
		dst = append(dst, s.Event.Name...)
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
func AppendProfileJSON(dst []byte, stats []probe.Stats) []byte {
	for i := range stats {
		dst = append(appendProfile(dst, &stats[i]), '}', '\n')
	}
	return dst
}

// appendProfile appends an object without its end.
func appendProfile(dst []byte, s *probe.Stats) []byte {
	dst = appendString(append(dst, `{"type":"profile","group":`...), s.Event.Group)
	dst = appendString(append(dst, `,"event":`...), s.Event.Name)
	dst = appendCount(append(dst, `,"places":`...), uint64(s.Places))
	dst = appendCount(append(dst, `,"hits":`...), s.Hits)
	dst = appendCount(append(dst, `,"nmissed":`...), s.Missed)
	dst = appendCount(append(dst, `,"filtered":`...), s.Filtered)
	dst = appendCount(append(dst, `,"lost":`...), s.Lost)
	if s.Disabled {
		dst = append(dst, `,"disabled":true`...)
	}
	return dst
}

// ProfileTable draws the counters of events for a person.
func ProfileTable(w io.Writer, stats []probe.Stats) error {
	t := Table{Columns: []Column{
		{"EVENT", Left}, {"PLACES", Right}, {"HITS", Right}, {"FILTERED", Right}, {"LOST", Right}, {"NMISSED", Right},
	}}
	number := func(v uint64) string { return strconv.FormatUint(v, 10) }
	for i := range stats {
		s := &stats[i]
		name := s.Event.Name
		if s.Event.Group != "" {
			name = eventName(s)
		}
		if s.Disabled {
			name += " [DISABLED]"
		}
		t.Rows = append(t.Rows, []string{
			name, strconv.Itoa(s.Places), number(s.Hits), number(s.Filtered), number(s.Lost), number(s.Missed),
		})
	}
	return t.Render(w)
}
