package engine

import (
	"slices"
	"sync"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/results"
)

// EventList is a session's events and the definitions that they are of, the ones that were
// removed too: their counters are kept. At most one event of a name is there at a time; one
// that is added under the name of one that was removed takes its place in the list, and its
// counters (Event.Before).
type EventList struct {
	begin  func(d *fetch.Def) *Event // makes the event of a name's first definition
	strike func(d *fetch.Def)        // is told of each definition that was taken out

	mu     sync.Mutex // held while begin and strike are called
	all    []*Event
	byName map[string]*Event
	gone   map[string]*Event // removed ones that are still in the list, by name
	defs   []*Definition
}

// newEventList makes an empty list: begin makes events of definitions, strike is told of
// definitions that were taken out.
func newEventList(begin func(*fetch.Def) *Event, strike func(*fetch.Def)) *EventList {
	return &EventList{begin: begin, strike: strike, byName: map[string]*Event{}, gone: map[string]*Event{}}
}

// Add enters definitions under their events' names: all, or none.
func (l *EventList) Add(defs []*fetch.Def) ([]*Definition, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var added []*Definition
	for _, d := range defs {
		ev := l.byName[d.Group+"/"+d.Event]
		if err := ev.takes(d); err != nil {
			l.drop(added)
			return nil, &assess.DefError{Def: d, Err: err}
		}
		if ev == nil {
			ev = l.enter(l.begin(d))
		}
		ev.defs = append(ev.defs, d)
		x := &Definition{Def: d, Ev: ev}
		l.defs = append(l.defs, x)
		added = append(added, x)
	}
	return added, nil
}

// takes is the error of why a definition can't be another one of the event, which may be nil.
func (e *Event) takes(d *fetch.Def) error {
	if e == nil {
		return nil
	}
	if e.user != nil {
		return &InvalidProbeError{Field: "Name", Reason: "a registered probe has that event"}
	}
	for _, o := range e.defs {
		if err := o.SameShape(d); err != nil {
			return err
		}
	}
	return nil
}

// enter puts an event that has just begun into the list. mu is held.
func (l *EventList) enter(ev *Event) *Event {
	name := ev.Group + "/" + ev.Name
	l.byName[name] = ev
	ev.Before = l.gone[name]
	if ev.Before == nil {
		ev.at = len(l.all)
		ev.bucket = ev.at
		l.all = append(l.all, ev)
		return ev
	}
	delete(l.gone, name)
	ev.Before.fold()
	ev.bucket = ev.Before.bucket
	l.replace(ev.Before, ev)
	return ev
}

// replace puts an event in another's place in the list. mu is held.
func (l *EventList) replace(was, is *Event) {
	is.at = was.at
	l.all[is.at] = is
}

// Retire forgets definitions that were taken out. An event without any is removed, and its
// counters stay.
func (l *EventList) Retire(list []*Definition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.defs = without(l.defs, list)
	for _, x := range list {
		x.Ev.defs = remove(x.Ev.defs, x.Def)
		l.strike(x.Def)
		if len(x.Ev.defs) == 0 {
			name := x.Ev.Group + "/" + x.Ev.Name
			x.Ev.removed = true
			delete(l.byName, name)
			l.gone[name] = x.Ev
		}
	}
}

// Drop takes back what Add entered, as it could not be armed.
func (l *EventList) Drop(added []*Definition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(added)
}

// drop is Drop. mu is held.
func (l *EventList) drop(added []*Definition) {
	l.defs = without(l.defs, added)
	var dropped []*Event
	for _, x := range added {
		x.Ev.defs = remove(x.Ev.defs, x.Def)
		if len(x.Ev.defs) > 0 {
			continue
		}
		name := x.Ev.Group + "/" + x.Ev.Name
		delete(l.byName, name)
		if x.Ev.Before == nil {
			dropped = append(dropped, x.Ev)
			continue
		}
		l.gone[name] = x.Ev.Before
		l.replace(x.Ev, x.Ev.Before)
	}
	if len(dropped) == 0 {
		return
	}
	l.all = without(l.all, dropped)
	for i, e := range l.all {
		e.at = i
	}
}

// Now lists the events that there are, in the order in which they were added.
func (l *EventList) Now() []*results.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*results.Event
	for _, e := range l.all {
		if !e.removed {
			out = append(out, &e.Event)
		}
	}
	return out
}

// Definitions lists the definitions that there are.
func (l *EventList) Definitions() []*Definition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.defs)
}

// All lists the events, those that were removed too.
func (l *EventList) All() []*Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// held calls fn with all events, those that were removed too: none comes or goes, and none's
// name is used again, while it runs.
func (l *EventList) held(fn func(all []*Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l.all)
}

// Naming calls fn, which may ask which names of events are taken: none is given away while
// it runs.
func (l *EventList) Naming(fn func(taken func(group, event string) bool) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fn(func(group, event string) bool { return l.byName[group+"/"+event] != nil })
}

// without gives the list but for some: another one, which doesn't keep them alive.
func without[T comparable](list, some []T) []T {
	drop := make(map[T]bool, len(some))
	for _, x := range some {
		drop[x] = true
	}
	var out []T
	for _, x := range list {
		if !drop[x] {
			out = append(out, x)
		}
	}
	return out
}

// remove gives the list without x: another one, which doesn't keep x alive.
func remove[T comparable](list []T, x T) []T {
	i := slices.Index(list, x)
	switch {
	case i < 0:
		return list
	case len(list) == 1:
		return nil
	}
	return slices.Concat(list[:i], list[i+1:])
}
