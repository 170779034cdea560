package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/output/metrics"
	"kprobe/output/spread"
	"kprobe/probe"
	"kprobe/probe/results"
)

// metricsInterval is how often a file of metrics is written where --interval says nothing:
// what Prometheus is asked to scrape at, usually.
const metricsInterval = 15 * time.Second

// exporter gives the counters of a profile to Prometheus: by HTTP, or in a file.
// A nil *exporter gives them to nobody.
type exporter struct {
	m        *messages
	server   *metrics.Server // nil: a file
	file     *metrics.File
	interval time.Duration
	quiet    bool
	source   metrics.Source
	warned   sync.Once
}

// isAddress reports whether a word is ADDR:PORT; everything else is a file.
func isAddress(word string) bool {
	_, port, err := net.SplitHostPort(word)
	if err != nil || strings.Contains(word, "/") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n <= 65535
}

// isHost reports whether the word before a port can only be meant as a machine's
// address: none at all, numbers, or localhost. Files may have colons in their names.
func isHost(s string) bool {
	return s == "" || s == "localhost" || net.ParseIP(s) != nil
}

// export takes the address or the file of --metrics, before a process is touched.
func (o *profileOptions) export(m *messages) (*exporter, error) {
	if o.metrics == "" {
		return nil, nil
	}
	x := &exporter{m: m, interval: o.interval, quiet: o.quiet}
	if x.interval == 0 {
		x.interval = metricsInterval
	}
	x.source.Version, x.source.Revision = Version, revision()
	if host, port, err := net.SplitHostPort(o.metrics); err == nil && !isAddress(o.metrics) && isHost(host) {
		return nil, misuse("--metrics %s: %s is not a port from 0 to 65535", o.metrics, port)
	}
	var err error
	if isAddress(o.metrics) {
		x.server, err = metrics.Listen(o.metrics)
	} else {
		x.file, err = metrics.NewFile(o.metrics)
	}
	if err != nil {
		return nil, fail(fmt.Errorf("--metrics: %w", err))
	}
	return x, nil
}

// metricsHint says what to do about an address or a file that can't be had.
func metricsHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program listens there: ss -ltnp shows which; give another port, or 0 for a free one"
	case errors.Is(err, metrics.ErrIrregular):
		return "--metrics takes ADDR:PORT, such as :9464, or the name of a file"
	}
	return ""
}

// watch gives the counters out beside what else watches them.
func (x *exporter) watch(o *profileOptions) {
	if x == nil {
		return
	}
	before := o.watch
	o.watch = func(stats func() []probe.Stats) func() {
		stop := func() {}
		if before != nil {
			stop = before(stats)
		}
		x.source.Places = func() []probe.Stats { return o.places() }
		x.source.Processes = func() []probe.ProcessStats { return o.processes() }
		end := x.begin()
		return func() {
			end()
			stop()
		}
	}
}

// times has the times of calls among the numbers.
func (x *exporter) times(d *Deps, o *profileOptions, p *probe.Options, calls *output.Latency) probe.Sink {
	if x == nil {
		return calls
	}
	x.source.Calls = func(yield func(event *results.Event, fn string, took *spread.Spread)) {
		calls.Counted(o.bins())
		calls.Each(yield)
	}
	kept := &metrics.Exemplars{Next: calls, Took: output.TookOf, Now: func(mono uint64) time.Time {
		now, wall := d.Now()
		return wall.Add(time.Duration(mono) - time.Duration(now))
	}}
	x.source.Exemplars = kept
	// Calls that have a trace's id come as records: the id is in them.
	p.Bin = func(ev *probe.Event, prog *fetch.Program) *results.Bin {
		if metrics.Wanted(prog) {
			return nil
		}
		return calls.Bin(ev, prog)
	}
	return kept
}

// live gives out the counters of sessions of others, until stop is called. When one of
// them has ended they stay as they were.
func (x *exporter) live(places func() ([]probe.Stats, error)) (stop func()) {
	if x == nil {
		return func() {}
	}
	var last []probe.Stats
	x.source.Places = func() []probe.Stats {
		if now, err := places(); err == nil {
			last = now
		}
		return slices.Clone(last)
	}
	end := x.begin()
	return func() {
		end()
		if x.file != nil {
			x.write()
		}
		x.source.Places = nil
	}
}

// begin gives the numbers out until stop is called.
func (x *exporter) begin() (stop func()) {
	c := metrics.New(x.source)
	if x.server != nil {
		if err := x.server.Serve(c); err != nil {
			x.m.warn("--metrics: %v", err)
			return x.server.Close
		}
		if !x.quiet {
			x.m.say("metrics at http://%s/metrics", x.server.Addr())
		}
		return x.server.Close
	}
	if err := x.file.Of(c); err != nil {
		x.m.warn("--metrics: %v", err)
		return func() {}
	}
	x.write()
	return beside(func(ctx context.Context) error {
		return again(ctx, x.interval, false, nil, func() error {
			x.write()
			return nil
		})
	})
}

// write replaces the file. A disk that is full ends no trace: the next time may do.
func (x *exporter) write() {
	if err := x.file.Write(); err != nil {
		x.warned.Do(func() { x.m.warn("--metrics: %v", err) })
	}
}

// end gives the last numbers, as of after the last probe is out, and lets go of the
// address.
func (x *exporter) end(o *profileOptions) {
	switch {
	case x == nil:
	case x.server != nil:
		x.server.Close()
	case x.source.Places != nil: // it began
		o.places = func() []probe.Stats { return o.atEnd }
		o.processes = func() []probe.ProcessStats { return nil }
		o.bins = func() []results.Bins { return o.binsAtEnd }
		x.write()
	}
}
