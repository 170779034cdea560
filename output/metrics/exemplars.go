package metrics

import (
	"sync"
	"time"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"kprobe/fetch"
	"kprobe/probe/results"
)

// exemplarNames are the values of a definition that tell whose request a call is of:
// calls that have them stand for others. They are the names that OpenMetrics and
// OpenTelemetry use.
var exemplarNames = []string{"trace_id", "span_id"}

// exemplarAge is how long an exemplar stays before another call of its bucket takes its
// place.
const exemplarAge = time.Second

// Exemplars is a results.Sink that keeps, for each bucket of each function, one of
// the calls that had a trace's id. It is safe for concurrent use.
type Exemplars struct {
	// Next gets the hits, too.
	Next results.Sink
	// Took gives the nanoseconds that a hit's call took.
	Took func(h *results.Hit) (uint64, error)
	// Now is the time of day of a moment of CLOCK_MONOTONIC.
	Now func(mono uint64) time.Time

	vals []fetch.Value

	mu   sync.Mutex
	kept map[seriesKey][]*dto.Exemplar // guarded by mu
}

// Wanted reports whether calls of a program can be exemplars: their records are needed.
func Wanted(p *fetch.Program) bool {
	for _, f := range p.Fields() {
		if f.Name == exemplarNames[0] {
			return true
		}
	}
	return false
}

// Hit implements results.Sink.
func (x *Exemplars) Hit(h *results.Hit) error {
	if Wanted(h.Program) {
		if err := x.keep(h); err != nil {
			return err
		}
	}
	return x.Next.Hit(h)
}

func (x *Exemplars) keep(h *results.Hit) error {
	took, err := x.Took(h)
	if err != nil {
		return err
	}
	key := seriesKey{event: eventName(h.Event), function: label(h.Func)}
	seconds := float64(took) / 1e9
	i := 0
	for i < len(bounds) && seconds > bounds[i] {
		i++
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.kept[key]
	if kept == nil {
		if len(x.kept) >= maxCalls {
			return nil
		}
		if x.kept == nil {
			x.kept = map[seriesKey][]*dto.Exemplar{}
		}
		kept = make([]*dto.Exemplar, len(bounds)+1)
		x.kept[key] = kept
	}
	at := x.Now(h.Time)
	if kept[i] != nil && at.Sub(kept[i].GetTimestamp().AsTime()) < exemplarAge {
		return nil
	}
	if x.vals, err = h.Program.Decode(h.Data, x.vals[:0]); err != nil {
		return err
	}
	if labels := exemplarLabels(h.Program.Fields(), x.vals); labels != nil {
		kept[i] = &dto.Exemplar{Label: labels, Value: new(seconds), Timestamp: timestamppb.New(at)}
	}
	return nil
}

// exemplarLabels gives the labels of a call; nil where it has no trace's id.
func exemplarLabels(fields []fetch.Field, vals []fetch.Value) (out []*dto.LabelPair) {
	const most = 128 // characters of all, names and values (OpenMetrics 1.0)
	size := 0
	for _, name := range exemplarNames {
		for i := range fields {
			if fields[i].Name != name || vals[i].Fault {
				continue
			}
			text := string(fetch.AppendText(nil, fields[i].Type, vals[i], nil))
			if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
				text = text[1 : n-1]
			}
			text = label(text)
			if size += utf8.RuneCountInString(name + text); text == "" || size > most {
				return nil
			}
			out = append(out, &dto.LabelPair{Name: new(name), Value: new(text)})
			break
		}
		if out == nil {
			return nil // without a trace's id there is none
		}
	}
	return out
}

// of gives a function's exemplars by bucket; nil is none.
func (x *Exemplars) of(key seriesKey) []*dto.Exemplar {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]*dto.Exemplar(nil), x.kept[key]...)
}
