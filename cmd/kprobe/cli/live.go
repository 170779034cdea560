package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"kprobe/fetch"
	"kprobe/output"
	"kprobe/probe"
	"kprobe/symbols"
)

// Live is what the commands need of a probe.Live.
type Live interface {
	Refresh() error
	Stats() []probe.Stats
	Probes() []probe.LiveProbe
	Enable(match func(group, event string) bool, on bool) ([]string, error)
	Add(ctx context.Context, defs []*fetch.Def) error
	Remove(ctx context.Context, events []string) error
	Delete(ctx context.Context, deletions []*fetch.Def) error
	Pending() []string
	Space() (*symbols.Space, error)
	HitsLocked() (why []string)
	LetsGo() (lets bool, why string)
	OpenCalls(ctx context.Context) ([]probe.OpenCall, error)
	Close() error
}

// lives gives the sessions of another kprobe that profile shows: no definition
// is given, and every process is traced by one. nil is none.
func (o *profileOptions) lives(d *Deps) ([]Live, error) {
	if len(o.pids) == 0 || len(o.defs.args) > 0 || len(o.defs.files) > 0 || o.controls() {
		return nil, nil
	}
	var out []Live
	for _, pid := range o.pids {
		l, err := d.live(pid)
		if err != nil {
			closeAll(out)
			if errors.Is(err, probe.ErrNotTraced) {
				return nil, nil
			}
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// live finds the session that traces a process; its errors name it.
func (d *Deps) live(pid int) (Live, error) {
	l, err := d.Engine.Live(pid)
	if errors.Is(err, fs.ErrNotExist) {
		err = &probe.NoProcessError{PID: pid}
	}
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	return l, nil
}

func closeAll(lives []Live) {
	for _, l := range lives {
		l.Close()
	}
}

// ended reports whether an error of a Live means that there is nothing more to
// see.
func ended(err error) bool {
	return errors.Is(err, probe.ErrNotTraced) || errors.Is(err, symbols.ErrGone) || errors.Is(err, probe.ErrGone)
}

// runLiveProfile shows the counters of sessions of another kprobe: once, or
// for as long as -t, --interval or a terminal ask for.
func runLiveProfile(ctx context.Context, d *Deps, m *messages, o *profileOptions, lives []Live, x *exporter) error {
	defer closeAll(lives)
	w, file, done, err := o.open(d)
	if err != nil {
		return err
	}
	v := newWatcher(d, o, w)
	o.names = map[placeAt]placeCalled{}
	var mu sync.Mutex // one looks at the sessions at a time
	look := func(counters func([]Live) ([]probe.Stats, error)) ([]probe.Stats, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lives {
			if err := l.Refresh(); err != nil {
				return nil, err
			}
		}
		return counters(lives)
	}
	stats := func() ([]probe.Stats, error) { return look(o.counters) }
	if v.first, err = o.counters(lives); err == nil && (v.shows() || o.duration > 0 || x != nil) {
		v.begin()
		v.before = v.first
		defer x.live(func() ([]probe.Stats, error) { return look(o.placesOf) })()
		err = v.follow(ctx, d, o.duration, file, stats)
	}
	if err == nil {
		var now []probe.Stats
		if now, err = o.counters(lives); err == nil {
			err = v.end(now, d.Terminal && o.outputFile == "")
		}
	}
	if o.form == output.JSON {
		now := merged(lives)
		err = both(err, closeJSON(w, output.Sum(now).Recorded, now, err))
	}
	if derr := done(); err == nil {
		err = derr
	}
	if errors.Is(err, output.ErrClosed) {
		return nil
	}
	if err == nil && o.form == output.Text && !o.quiet && !(d.Terminal && o.outputFile == "") {
		for _, line := range output.FilteredLines(merged(lives)) {
			m.say("%s", line)
		}
	}
	return fail(err)
}

// follow shows counters until a signal, the end of the sessions, or the end of
// a duration that is not 0.
func (v *watcher) follow(ctx context.Context, d *Deps, duration time.Duration, file *os.File, stats func() ([]probe.Stats, error)) error {
	run, _, stop := watchSignals(ctx, d.Link)
	defer stop()
	if duration > 0 {
		timed, cancel := context.WithTimeout(run, duration)
		defer cancel()
		run = timed
	}
	run, _ = watchReader(run, file)
	if !v.shows() && v.o.metrics != "" {
		return unlessEnded(again(run, 0, false, nil, func() error { // to see the sessions end
			_, err := stats()
			return err
		}))
	}
	if !v.shows() {
		<-run.Done()
		_, err := stats()
		return unlessEnded(err)
	}
	if err := v.loop(run, stats); err != nil {
		return unlessEnded(err)
	}
	_, err := stats() // since the last interval
	return unlessEnded(err)
}

func unlessEnded(err error) error {
	if ended(err) {
		return nil
	}
	return err
}

// merged adds the counters of events of the same name in several processes.
func merged(lives []Live) []probe.Stats {
	var out []probe.Stats
	for _, l := range lives {
		for _, s := range l.Stats() {
			i := slices.IndexFunc(out, func(o probe.Stats) bool {
				return o.Event.Group == s.Event.Group && o.Event.Name == s.Event.Name
			})
			if i < 0 {
				out = append(out, s)
				continue
			}
			out[i].Merge(&s)
		}
	}
	return out
}

// symbolized names an address by the symbol that covers it, "" where there is
// none, and the library that it is in, "" for the program.
func symbolized(space *symbols.Space, at symbols.Addr) (name string, off uint64, module string) {
	name, off, _, m, ok := space.Symbolize(at)
	if ok && m != nil && !m.Main {
		module = m.Name
	}
	return name, off, module
}

// dataNamed is symbolized for data.
func dataNamed(space *symbols.Space, at symbols.Addr) (name string, off uint64, module string) {
	name, off, m, _ := space.DataAt(at)
	if m != nil && !m.Main {
		module = m.Name
	}
	return name, off, module
}

// sitesOf lists the armed places of a session, by address.
func sitesOf(pid int, l Live, match func(group, event string) bool) ([]output.Site, error) {
	space, err := l.Space()
	if err != nil {
		return nil, err
	}
	var out []output.Site
	for _, p := range l.Probes() {
		if !match(p.Group, p.Event) {
			continue
		}
		s := output.Site{
			PID: pid, Group: p.Group, Event: p.Event, Addr: p.Addr, Return: p.Return,
			Optimized: p.Optimized, Disabled: p.Disabled, Gone: p.Gone, Waiting: p.Waiting, Age: p.Age,
		}
		if p.Tactic != probe.TacticRefused {
			s.Tactic = p.Tactic.String()
			s.Watch = p.Tactic == probe.TacticDebugRegister
		}
		switch {
		case p.Waiting:
		case s.Watch:
			s.Symbol, s.Offset, s.Module = dataNamed(space, p.Addr)
		default:
			s.Symbol, s.Offset, s.Module = symbolized(space, p.Addr)
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b output.Site) int { return cmp.Compare(a.Addr, b.Addr) })
	return out, nil
}
