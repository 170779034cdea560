package output

import (
	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// Losses notices what events lose while a trace runs. The zero value is ready to use. It is not
// safe for concurrent use.
type Losses struct {
	seen map[*results.Event]uint64
}

// Loss is what an event lost since the last look.
type Loss struct {
	Event *results.Event
	New   uint64 // since the last look
	Total uint64
}

// Since returns the events that lost hits since the last call.
func (l *Losses) Since(stats []results.Stats) []Loss {
	var out []Loss
	for i := range stats {
		e, lost := stats[i].Event, stats[i].Lost
		if was := l.seen[e]; lost > was {
			if l.seen == nil {
				l.seen = map[*results.Event]uint64{}
			}
			l.seen[e] = lost
			out = append(out, Loss{e, lost - was, lost})
		}
	}
	return out
}

// AppendLossJSON appends the object of a loss that was noticed at now, CLOCK_MONOTONIC in
// nanoseconds. With a clock of distances it has no time, because no hit is known to be the
// previous one.
func AppendLossJSON(dst []byte, l *Loss, clock Clock, now uint64) []byte {
	dst = append(dst, `{"type":"lost"`...)
	if clock.form != distance {
		us := clock.at(now) / 1000
		dst = appendPadded(append(dst, `,"time":`...), us/1e6, 1, ' ')
		dst = appendMicros(append(dst, '.'), us%1e6)
	}
	dst = quote.AppendJSON(append(dst, `,"group":`...), l.Event.Group)
	dst = quote.AppendJSON(append(dst, `,"event":`...), l.Event.Name)
	dst = appendCount(append(dst, `,"lost":`...), l.New)
	dst = appendCount(append(dst, `,"total":`...), l.Total)
	return append(dst, '}', '\n')
}
