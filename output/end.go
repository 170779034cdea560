package output

import (
	"fmt"
	"strings"

	"kprobe/probe"
)

// Totals are the sums over all events of a trace.
type Totals struct {
	Hits, Recorded, Filtered, Lost, Missed uint64
}

// Sum adds up the counters of events.
func Sum(stats []probe.Stats) Totals {
	var t Totals
	for i := range stats {
		t.Hits += stats[i].Hits
		t.Recorded += stats[i].Recorded
		t.Filtered += stats[i].Filtered
		t.Lost += stats[i].Lost
		t.Missed += stats[i].Missed
	}
	return t
}

// AppendEnd appends the object that closes a stream of JSON: the number of
// events that were written, those lost, and for each event with missed hits
// their number by GRP/EVENT.
func AppendEnd(dst []byte, events uint64, stats []probe.Stats) []byte {
	t := Sum(stats)
	dst = appendCount(append(dst, `{"type":"end","events":`...), events)
	dst = appendCount(append(dst, `,"lost":`...), t.Lost)
	dst = appendCount(append(dst, `,"filtered":`...), t.Filtered)
	dst = append(dst, `,"missed":{`...)
	first := true
	for i := range stats {
		if stats[i].Missed == 0 {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendString(dst, stats[i].Event.Group+"/"+stats[i].Event.Name)
		dst = appendCount(append(dst, ':'), stats[i].Missed)
	}
	return append(dst, '}', '}', '\n')
}

// AppendError appends the object of an error that ended a stream of JSON.
func AppendError(dst []byte, message string) []byte {
	dst = appendString(append(dst, `{"type":"error","message":`...), message)
	return append(dst, '}', '\n')
}

// EndLine is what a person is told at the end of a trace, without newline: how
// many events there were, how many were lost or missed and why, and which of
// the processes run on.
func EndLine(events uint64, stats []probe.Stats, alive []int) string {
	t := Sum(stats)
	var b strings.Builder
	b.WriteString(count(events, "event"))
	if t.Filtered > 0 {
		fmt.Fprintf(&b, ", %d filtered out", t.Filtered)
	}
	fmt.Fprintf(&b, ", %d lost", t.Lost)
	if t.Lost > 0 {
		b.WriteString(" (the buffer was full, or the trace ended before they were read)")
	}
	if t.Missed > 0 {
		fmt.Fprintf(&b, ", %d missed (no free return instance: a larger --maxactive helps)", t.Missed)
	}
	switch len(alive) {
	case 0:
		b.WriteString("; the target has ended")
	case 1:
		fmt.Fprintf(&b, "; process %d runs on", alive[0])
	default:
		fmt.Fprintf(&b, "; %d processes run on", len(alive))
	}
	return b.String()
}

// UnarmedLine is what a person is told at the end of a trace of events that never
// had a place, without newline: which they are, and of some what they waited for.
func UnarmedLine(events []*probe.Event) string {
	const most = 4
	var b strings.Builder
	for i, e := range events {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(events)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s/%s", e.Group, e.Name)
		if e.Def != nil && e.Def.Place.Module != "" {
			fmt.Fprintf(&b, " (%s was not loaded)", e.Def.Place.Module)
		}
	}
	if len(events) == 1 {
		return b.String() + " was never armed"
	}
	return b.String() + " were never armed"
}

func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
