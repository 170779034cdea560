package cli

import (
	"context"
	"fmt"
	"os"
	"slices"

	"kprobe/fetch"

	"kprobe/probe"
	"kprobe/symbols"
)

// fakeLive is a session of another kprobe.
type fakeLive struct {
	probes []probe.LiveProbe
	reads  int
	// dies is the number of reads after which the session has ended; 0 is never.
	dies    int
	closed  int
	added   []*fetch.Def
	refuses error
	open    []probe.OpenCall
	locked  []string
	letsGo  bool
	traced  string
	pending []string
	blind   error    // that semaphores could not be switched
	taken   []string // events that another command takes out before this one can
}

func (l *fakeLive) Pending() []string { return l.pending }

func (l *fakeLive) HitsLocked() []string { return l.locked }

func (l *fakeLive) LetsGo() (lets bool, why string) { return l.letsGo, l.traced }

func (l *fakeLive) Add(_ context.Context, defs []*fetch.Def) error {
	if l.refuses != nil {
		return &probe.DefError{Def: defs[0], Err: l.refuses}
	}
	for _, d := range defs {
		l.probes = append(l.probes, probe.LiveProbe{Group: d.Group, Event: d.Event})
	}
	l.added = append(l.added, defs...)
	return nil
}

func (l *fakeLive) Remove(_ context.Context, events []string) error {
	if l.refuses != nil {
		return l.refuses
	}
	if taken := l.taken; len(taken) > 0 {
		l.taken = nil
		_ = l.Remove(context.Background(), taken)
	}
	for _, name := range events {
		if !slices.ContainsFunc(l.probes, func(p probe.LiveProbe) bool { return p.Group+"/"+p.Event == name }) {
			return fmt.Errorf("%s: %w", name, probe.ErrNoEvent)
		}
	}
	l.probes = slices.DeleteFunc(l.probes, func(p probe.LiveProbe) bool { return slices.Contains(events, p.Group+"/"+p.Event) })
	return nil
}

func (l *fakeLive) Delete(_ context.Context, deletions []*fetch.Def) error {
	if l.refuses != nil {
		return l.refuses
	}
	names := func(d *fetch.Def, p probe.LiveProbe) bool {
		return p.Event == d.Event && (d.Group == "" || p.Group == d.Group)
	}
	for _, d := range deletions {
		if !slices.ContainsFunc(l.probes, func(p probe.LiveProbe) bool { return names(d, p) }) {
			return &probe.DefError{Def: d, Err: probe.ErrNoEvent}
		}
	}
	for _, d := range deletions {
		l.probes = slices.DeleteFunc(l.probes, func(p probe.LiveProbe) bool { return names(d, p) })
	}
	return nil
}

func (l *fakeLive) Refresh() error {
	l.reads++
	if l.dies > 0 && l.reads >= l.dies {
		return probe.ErrNotTraced
	}
	for i := range l.probes {
		l.probes[i].Counts.Hits += 10
	}
	return nil
}

func (l *fakeLive) Stats() []probe.Stats {
	var out []probe.Stats
	for _, p := range l.probes {
		out = append(out, probe.Stats{
			Event: &probe.Event{Group: p.Group, Name: p.Event}, Places: 1,
			Hits: p.Counts.Hits, Missed: p.Counts.Missed, Disabled: p.Disabled,
		})
	}
	return out
}

func (l *fakeLive) Probes() []probe.LiveProbe { return l.probes }

func (l *fakeLive) Enable(match func(group, event string) bool, on bool) ([]string, error) {
	var out []string
	for i := range l.probes {
		if p := &l.probes[i]; match(p.Group, p.Event) {
			p.Disabled = !on
			out = append(out, p.Group+"/"+p.Event)
		}
	}
	return out, l.blind
}

func (l *fakeLive) Space() (*symbols.Space, error) { return symbols.OpenProcess(os.Getpid(), nil) }

func (l *fakeLive) OpenCalls(context.Context) ([]probe.OpenCall, error) { return l.open, nil }

func (l *fakeLive) Close() error {
	l.closed++
	return nil
}
