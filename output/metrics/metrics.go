// Package metrics exports counters and latencies of a session to Prometheus and other readers
// of its formats: over HTTP, or in a file that is replaced again and again.
package metrics

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kprobe/internal/quote"
	"kprobe/output/spread"
	"kprobe/probe/results"
)

// Source is where the numbers come from. Its functions are called by several
// goroutines, one at a time.
type Source struct {
	// Places gives the counters of every place.
	Places func() []results.Stats
	// Processes gives the counters of every event in every process that lives; nil
	// is none.
	Processes func() []results.ProcessStats
	// Calls gives how long the calls of functions took, in nanoseconds, as far as they are
	// measured; nil is none. What yield is given it may keep.
	Calls func(yield func(event *results.Event, fn string, took *spread.Spread))
	// Exemplars are calls that stand for others; nil is none.
	Exemplars *Exemplars
	// Version and Revision are kprobe's.
	Version, Revision string
}

// How many series a family has at most. What comes later than so many is added up in a
// series whose function, or process, is called rest.
const (
	maxPlaces    = 1000
	maxCalls     = 100
	maxProcesses = 500

	rest = "(other)"
)

// Collector is a prometheus.Collector of a session's counters.
type Collector struct {
	source Source
	start  time.Time

	mu     sync.Mutex
	places map[seriesKey]bool // guarded by mu: the series of places that there are
	calls  map[seriesKey]bool // guarded by mu: those of calls
}

// seriesKey is what the labels of a series are made of.
type seriesKey struct{ event, function, module string }

// New makes a collector.
func New(s Source) *Collector {
	return &Collector{source: s, start: time.Now(), places: map[seriesKey]bool{}, calls: map[seriesKey]bool{}}
}

var (
	placeLabels   = []string{"event", "function", "module"}
	processLabels = []string{"event", "pid", "process"}
	callLabels    = []string{"event", "function"}

	hitsDesc      = prometheus.NewDesc("kprobe_hits_total", "Times that a place was reached, or that a function returned.", placeLabels, nil)
	filteredDesc  = prometheus.NewDesc("kprobe_filtered_total", "Hits that the filter of the definition refused.", placeLabels, nil)
	lostDesc      = prometheus.NewDesc("kprobe_lost_total", "Hits that were not recorded.", placeLabels, nil)
	limitedDesc   = prometheus.NewDesc("kprobe_limited_total", "Hits beyond as many as are recorded of an event in a second (--limit).", placeLabels, nil)
	missedDesc    = prometheus.NewDesc("kprobe_missed_total", "Calls that no instance was free for, which are no hits.", placeLabels, nil)
	inProcessDesc = prometheus.NewDesc("kprobe_process_hits_total", "Hits in a process that is traced now.", processLabels, nil)
	placesDesc    = prometheus.NewDesc("kprobe_places", "Places where the event is armed now, in all processes.", []string{"event"}, nil)
	trappedDesc   = prometheus.NewDesc("kprobe_breakpoints", "Places that are breakpoints now: their hits stop a thread for some microseconds.", []string{"event"}, nil)
	callsDesc     = prometheus.NewDesc("kprobe_call_duration_seconds", "How long calls took, from entry to return.", callLabels, nil)
	buildDesc     = prometheus.NewDesc("kprobe_build_info", "The version of kprobe that counts.", []string{"version", "revision"}, nil)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{hitsDesc, filteredDesc, lostDesc, limitedDesc, missedDesc, inProcessDesc, placesDesc, trappedDesc, callsDesc, buildDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to <- prometheus.MustNewConstMetric(buildDesc, prometheus.GaugeValue, 1, c.source.Version, c.source.Revision)
	c.collectPlaces(to)
	if c.source.Processes != nil {
		c.collectProcesses(to)
	}
	if c.source.Calls != nil {
		c.collectCalls(to)
	}
}

// label is text of programs as a label's value: whole, valid UTF-8, of a line.
func label(s string) string {
	const most = 256 // a name of C++ may have thousands
	if len(s) > most {
		s = s[:most] + "…"
	}
	return quote.Plain(s)
}

func eventName(e *results.Event) string { return label(e.Group + "/" + e.Name) }

// admit gives the series that counts of a place go to: its own, if there is one or room for
// one. A place that was not reached gets at most half of the room.
func admit(there map[seriesKey]bool, key seriesKey, most int, reached bool) seriesKey {
	if !reached {
		most /= 2
	}
	if !there[key] {
		if len(there) >= most {
			return seriesKey{event: key.event, function: rest}
		}
		there[key] = true
	}
	return key
}

func (c *Collector) collectPlaces(to chan<- prometheus.Metric) {
	all := c.source.Places()
	slices.SortStableFunc(all, func(a, b results.Stats) int { return cmp.Compare(b.Hits, a.Hits) })
	sums := map[seriesKey]results.Counts{}
	type armed struct{ places, trapped int }
	events := map[string]armed{}
	for i := range all {
		s := &all[i]
		event := eventName(s.Event)
		key := admit(c.places, seriesKey{event, label(s.Place), label(s.Module)}, maxPlaces, s.Hits+s.Missed > 0)
		sum := results.Stats{}
		sum.Count(sums[key])
		sum.Count(s.Counts())
		sums[key] = sum.Counts()
		a := events[event]
		events[event] = armed{a.places + s.Places, a.trapped + s.Trapped}
	}
	for key, n := range sums {
		labels := []string{key.event, key.function, key.module}
		c.counter(to, hitsDesc, n.Hits, labels)
		c.counter(to, filteredDesc, n.Filtered, labels)
		c.counter(to, lostDesc, n.Lost, labels)
		if n.Limited > 0 {
			c.counter(to, limitedDesc, n.Limited, labels)
		}
		c.counter(to, missedDesc, n.Missed, labels)
	}
	for event, a := range events {
		to <- prometheus.MustNewConstMetric(placesDesc, prometheus.GaugeValue, float64(a.places), event)
		to <- prometheus.MustNewConstMetric(trappedDesc, prometheus.GaugeValue, float64(a.trapped), event)
	}
}

// counter gives a counter that began when the collector did.
func (c *Collector) counter(to chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels []string) {
	to <- prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, float64(n), c.start, labels...)
}

// collectProcesses gives the processes with the most hits: a series ends with its
// process.
func (c *Collector) collectProcesses(to chan<- prometheus.Metric) {
	all := c.source.Processes()
	slices.SortStableFunc(all, func(a, b results.ProcessStats) int {
		return cmp.Or(cmp.Compare(b.Hits, a.Hits), cmp.Compare(a.PID, b.PID))
	})
	sums := map[[3]string]uint64{}
	for i := range all[:min(len(all), maxProcesses)] {
		s := &all[i]
		sums[[3]string{eventName(s.Event), fmt.Sprint(s.PID), label(s.Comm)}] += s.Hits
	}
	for labels, n := range sums {
		to <- prometheus.MustNewConstMetric(inProcessDesc, prometheus.CounterValue, float64(n), labels[:]...)
	}
}

func (c *Collector) collectCalls(to chan<- prometheus.Metric) {
	sums := map[seriesKey]*spread.Spread{}
	c.source.Calls(func(event *results.Event, fn string, took *spread.Spread) {
		key := admit(c.calls, seriesKey{event: eventName(event), function: label(fn)}, maxCalls, true)
		if sums[key] == nil {
			sums[key] = &spread.Spread{}
		}
		sums[key].Merge(took)
	})
	for key, sum := range sums {
		to <- &histogram{start: c.start, key: key, took: sum, exemplars: c.source.Exemplars.of(key)}
	}
}
