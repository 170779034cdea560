package output

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"kprobe/fetch"
	"kprobe/output/spread"
	"kprobe/probe/results"
)

// Latency is the results.Sink of a latency profile: how long each function's
// calls took: the last value of their records, or what the process has counted itself.
// Hit is called from one goroutine, Calls from any.
type Latency struct {
	mu   sync.Mutex
	rows map[latencyKey]*spread.Spread // guarded by mu
	last latencyKey                    // guarded by mu: of the last hit
	row  *spread.Spread                // guarded by mu: of last
	lost map[latencyKey]uint64         // guarded by mu
	bins []results.Bins                // guarded by mu: as of the last Counted
}

type latencyKey struct {
	event *results.Event
	fn    string
}

// Took is the argument that must end a return probe's definition for its hits to be counted by
// a Latency.
const Took = "took=$duration"

// TookOf returns the duration, in nanoseconds, of the call that a hit of such a definition
// stands for.
func TookOf(h *results.Hit) (uint64, error) {
	args := h.Program.Args[:len(h.Program.Fields())]
	if n := len(args); n == 0 || len(h.Data) < args[n-1].Slot+8 {
		return 0, fmt.Errorf("count a call of %s: its record holds no time: %w", h.Func, fetch.ErrCorrupt)
	}
	return binary.LittleEndian.Uint64(h.Data[args[len(args)-1].Slot:]), nil
}

// Bin has calls counted in the process, by the time that they took.
func (l *Latency) Bin(_ *results.Event, prog *fetch.Program) *results.Bin {
	return &results.Bin{Arg: len(prog.Fields()) - 1, Form: results.FormFine}
}

// Counted says what the processes have counted until now.
func (l *Latency) Counted(bins []results.Bins) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bins = bins
}

// Hit implements results.Sink.
func (l *Latency) Hit(h *results.Hit) error {
	took, err := TookOf(h)
	if err != nil {
		return err
	}
	key := latencyKey{h.Event, h.Func}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.row == nil || key != l.last {
		l.choose(key)
	}
	l.row.Add(took)
	return nil
}

// choose makes key's row that of the next hits. mu must be held.
func (l *Latency) choose(key latencyKey) {
	row := l.rows[key]
	if row == nil {
		if l.rows == nil {
			l.rows = map[latencyKey]*spread.Spread{}
		}
		row = &spread.Spread{}
		l.rows[key] = row
	}
	l.last, l.row = key, row
}

// Calls are the statistics of a function's calls. Times are nanoseconds.
type Calls struct {
	Group, Event string // of the probe; both "" for a total
	Func         string
	Count        uint64
	Lost         uint64 // calls that returned, too, but whose times were lost
	Total        uint64 // time in all calls together; those inside each other count each
	Min, Max     uint64
	Average      uint64
	P50, P99     uint64 // the nearest rank, within 1 % of the exact value
	Steps        []Step // a power-of-two histogram, from the lowest to the highest that has calls
}

// Step is how many calls took from From to To nanoseconds, both included.
type Step = spread.Power

// Lose says what was lost until now, by the counters of places.
func (l *Latency) Lose(places []results.Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = map[latencyKey]uint64{}
	for i := range places {
		if p := &places[i]; p.Lost > 0 {
			l.lost[latencyKey{p.Event, p.Place}] += p.Lost
		}
	}
}

// Calls gives every function that was called, the one first that took the most
// time in all, and behind them the events of stats that had no hit. With total
// a last one stands for all together.
func (l *Latency) Calls(stats []results.Stats, total bool) []Calls {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Calls
	var all spread.Spread
	lost := uint64(0)
	rows := l.all()
	for key, row := range rows {
		c := callsOf(row, key.event.Group, key.event.Name, key.fn)
		c.Lost = l.lost[key]
		out = append(out, c)
		all.Merge(row)
	}
	for key, n := range l.lost {
		if lost += n; rows[key] == nil {
			out = append(out, Calls{Group: key.event.Group, Event: key.event.Name, Func: key.fn, Lost: n})
		}
	}
	slices.SortFunc(out, func(a, b Calls) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Func, b.Func), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Event, b.Event))
	})
	for i := range stats {
		e := stats[i].Event
		if !slices.ContainsFunc(out, func(c Calls) bool { return c.Group == e.Group && c.Event == e.Name }) {
			out = append(out, Calls{Group: e.Group, Event: e.Name, Func: uncalled(e)})
		}
	}
	if total {
		c := callsOf(&all, "", "", "total")
		c.Lost = lost
		out = append(out, c)
	}
	return out
}

// all is what is known of all functions' calls: rows, and what the processes have
// counted. mu must be held.
func (l *Latency) all() map[latencyKey]*spread.Spread {
	if len(l.bins) == 0 {
		return l.rows
	}
	out := maps.Clone(l.rows)
	if out == nil {
		out = map[latencyKey]*spread.Spread{}
	}
	for i := range l.bins {
		b := &l.bins[i]
		if b.Count == 0 {
			continue
		}
		key, sum := latencyKey{b.Event, b.Func}, &spread.Spread{}
		if was := out[key]; was != nil {
			sum.Merge(was)
		}
		sum.Merge(spread.Of(b.Count, b.Sum, b.Least, b.Most, b.Cells))
		out[key] = sum
	}
	return out
}

// Each gives, for each function that was called, how long its calls took. What yield is
// given it must not keep.
func (l *Latency) Each(yield func(event *results.Event, fn string, took *spread.Spread)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, row := range l.all() {
		yield(key.event, key.fn, row)
	}
}

// anyLost reports whether calls were lost.
func anyLost(calls []Calls) bool {
	return slices.ContainsFunc(calls, func(c Calls) bool { return c.Lost > 0 })
}

// lostShare is how many calls were lost, and which share of all that is.
func (c *Calls) lostShare() string {
	return fmt.Sprintf("%d (%s)", c.Lost, percent(c.Lost, c.Count+c.Lost))
}

// uncalled names what an event without hits is about.
func uncalled(e *results.Event) string {
	if e.Def == nil {
		return e.Name
	}
	if e.Def.Place.Symbol != "" {
		return e.Def.Place.Symbol
	}
	return e.Def.Place.String()
}

func callsOf(s *spread.Spread, group, event, fn string) Calls {
	return Calls{
		Group: group, Event: event, Func: fn,
		Count: s.Count, Total: s.Sum, Min: s.Min, Max: s.Max,
		Average: s.Average(), P50: s.Percentile(50), P99: s.Percentile(99), Steps: s.Powers(),
	}
}
