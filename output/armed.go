package output

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"kprobe/internal/plural"
	"kprobe/probe/results"
)

// Armed counts the probes of a trace when they have just been put in.
type Armed struct {
	Events int // definitions' events
	// Jumps, Breakpoints and Watchpoints are the places that are armed, by how they
	// are.
	Jumps, Breakpoints, Watchpoints int

	Waiting int           // events without a place: they wait for a library or a program
	After   time.Duration // from the start of the command until now
}

// CountArmed sums up the counters of a session's events.
func CountArmed(stats []results.Stats, after time.Duration) Armed {
	a := Armed{Events: len(stats), After: after}
	for i := range stats {
		a.Breakpoints += stats[i].Trapped
		a.Watchpoints += stats[i].Watched
		a.Jumps += stats[i].Places - stats[i].Trapped - stats[i].Watched
		if stats[i].Places == 0 {
			a.Waiting++
		}
	}
	return a
}

// Line is the message that says: now is the time to start the load. It has no newline.
func (a Armed) Line() string {
	var b strings.Builder
	n := a.Jumps + a.Breakpoints + a.Watchpoints
	if n == 0 {
		return fmt.Sprintf("no probe is in yet: %s for the file that has %s", plural.Of(a.Waiting, "event waits", "events wait"), it(a.Waiting))
	}
	fmt.Fprintf(&b, "%s in after %.2f s: ", plural.Of(n, "probe is", "probes are"), a.After.Seconds())
	var ways []string
	if a.Jumps > 0 {
		ways = append(ways, plural.Of(a.Jumps, "jump", "jumps"))
	}
	if a.Breakpoints > 0 {
		ways = append(ways, plural.Of(a.Breakpoints, "breakpoint", "breakpoints"))
	}
	if a.Watchpoints > 0 {
		ways = append(ways, plural.Of(a.Watchpoints, "watchpoint", "watchpoints"))
	}
	b.WriteString(strings.Join(ways, ", "))
	if a.Waiting > 0 {
		fmt.Fprintf(&b, "; %s for the file that has %s", plural.Of(a.Waiting, "event waits", "events wait"), it(a.Waiting))
	}
	return b.String()
}

func it(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// AppendJSON appends the object that begins a stream of JSON: hits can only
// follow it.
func (a Armed) AppendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"type":"armed","events":`...), int64(a.Events), 10)
	dst = strconv.AppendInt(append(dst, `,"jumps":`...), int64(a.Jumps), 10)
	dst = strconv.AppendInt(append(dst, `,"breakpoints":`...), int64(a.Breakpoints), 10)
	if a.Watchpoints > 0 {
		dst = strconv.AppendInt(append(dst, `,"watchpoints":`...), int64(a.Watchpoints), 10)
	}
	dst = strconv.AppendInt(append(dst, `,"waiting":`...), int64(a.Waiting), 10)
	dst = strconv.AppendFloat(append(dst, `,"seconds":`...), a.After.Seconds(), 'f', 3, 64)
	return append(dst, '}', '\n')
}
