package output

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// Totals are the sums over all events of a trace.
type Totals struct {
	Hits, Recorded, Filtered, Lost, Limited, Missed uint64
}

// Passed is the number of hits that no filter rejected.
func (t Totals) Passed() uint64 { return t.Recorded + t.Lost + t.Limited }

// Sum adds up the counters of events.
func Sum(stats []results.Stats) Totals {
	var t Totals
	for i := range stats {
		t.Hits += stats[i].Hits
		t.Recorded += stats[i].Recorded
		t.Filtered += stats[i].Filtered
		t.Lost += stats[i].Lost
		t.Limited += stats[i].Limited
		t.Missed += stats[i].Missed
	}
	return t
}

// AppendEnd appends the object that closes a stream of JSON: the number of
// events that were written, those lost, the share of these in per cent if there are
// any, those beyond a limit if there are any, and for each event with missed hits
// their number by GRP/EVENT.
func AppendEnd(dst []byte, events uint64, stats []results.Stats) []byte {
	t := Sum(stats)
	dst = appendCount(append(dst, `{"type":"end","events":`...), events)
	dst = appendCount(append(dst, `,"lost":`...), t.Lost)
	if t.Lost > 0 {
		dst = appendPercent(append(dst, `,"lost_percent":`...), t.Lost, t.Passed())
	}
	dst = appendCount(append(dst, `,"filtered":`...), t.Filtered)
	if t.Limited > 0 {
		dst = appendCount(append(dst, `,"limited":`...), t.Limited)
	}
	dst = append(dst, `,"missed":{`...)
	// Several commands may have left events of one name in a process.
	var names []string
	missed := map[string]uint64{}
	for i := range stats {
		name := stats[i].Event.Group + "/" + stats[i].Event.Name
		if missed[name] == 0 && stats[i].Missed > 0 {
			names = append(names, name)
		}
		missed[name] += stats[i].Missed
	}
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCount(append(quote.AppendJSON(dst, name), ':'), missed[name])
	}
	return append(dst, '}', '}', '\n')
}

// AppendError appends the object of an error that ended a stream of JSON.
func AppendError(dst []byte, message string) []byte {
	dst = quote.AppendJSON(append(dst, `{"type":"error","message":`...), message)
	return append(dst, '}', '\n')
}

// EndLine is the message at the end of a trace, without newline: how many events there were,
// how many were lost or missed and why, and which of the processes run on, or what ended the
// last of them.
func EndLine(events uint64, stats []results.Stats, alive []int, killed []results.Death) string {
	var b strings.Builder
	b.WriteString(CountsLine(events, stats))
	switch len(alive) {
	case 0:
		if len(killed) == 0 {
			b.WriteString("; the target has ended")
			break
		}
		last := killed[len(killed)-1]
		fmt.Fprintf(&b, "; process %d was killed by %s", last.PID, signalName(last.Signal))
	case 1:
		fmt.Fprintf(&b, "; process %d runs on", alive[0])
	default:
		fmt.Fprintf(&b, "; %d processes run on", len(alive))
	}
	return b.String()
}

// CountsLine is the part of EndLine about events and hits.
func CountsLine(events uint64, stats []results.Stats) string {
	t := Sum(stats)
	var b strings.Builder
	b.WriteString(count(events, "event"))
	if t.Filtered > 0 {
		fmt.Fprintf(&b, ", %d filtered out", t.Filtered)
	}
	fmt.Fprintf(&b, ", %d lost", t.Lost)
	if t.Lost > 0 {
		fmt.Fprintf(&b, " (the buffer was full, or the trace ended before they were read: %s of all; a larger --ring helps)", percent(t.Lost, t.Passed()))
	}
	if t.Limited > 0 {
		fmt.Fprintf(&b, ", %d beyond --limit", t.Limited)
	}
	if t.Missed > 0 {
		fmt.Fprintf(&b, ", %d missed (%s)", t.Missed, results.WhyMissed)
	}
	return b.String()
}

// UnarmedLine is the message at the end of a trace about events that never had a place, without
// newline: which they are, and for some what they waited for.
func UnarmedLine(events []*results.Event) string {
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

// saidFilters is how many events' filters are told of at most.
const saidFilters = 16

// FilteredLines are messages about events with filters, without newlines: how many hits passed
// each.
func FilteredLines(stats []results.Stats) []string {
	var out []string
	more := 0
	for i := range stats {
		s := &stats[i]
		switch {
		case s.Filtered == 0 && (s.Event.Def == nil || s.Event.Def.Filter == nil):
		case len(out) == saidFilters:
			more++
		default:
			out = append(out, fmt.Sprintf("%s: %d of %s passed its filter", eventName(s), s.Hits-min(s.Hits, s.Filtered), count(s.Hits, "hit")))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more events have filters", more))
	}
	return out
}

// InterposedLine is the message about an event without hits because the program calls another
// module's function by that name, without newline.
func InterposedLine(in *results.Interposed) string {
	place := in.Event.Def.Place
	whose := in.By + "'s"
	if in.Main {
		whose = "the program's own"
	}
	return fmt.Sprintf("%s/%s had no hit: %s of this program is %s, not %s's; write %s without %s:",
		in.Event.Group, in.Event.Name, place.Symbol, whose, place.Module, place.Symbol, place.Module)
}

func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// signalName is a signal's name as kill -l has it, with SIG before it.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
