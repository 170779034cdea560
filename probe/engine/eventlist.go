package engine

import (
	"slices"
	"sync"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/results"
)

// EventList is the list of a session's events and definitions. Removed events stay in it, because
// their counters are kept. A name has at most one event that is not removed. An event that is added
// with the name of a removed one takes its index in the list, and continues its counters
// (Event.Before).
type EventList struct {
	begin  func(d *fetch.Def) *Event // makes an event for the first definition of a name
	strike func(d *fetch.Def)        // is called for each removed definition

	mu     sync.Mutex // held while begin and strike are called
	all    []*Event
	byName map[string]*Event
	gone   map[string]*Event // removed events in the list, by name
	defs   []*Definition
}

// newEventList makes an empty list. begin and strike are as in EventList.
func newEventList(begin func(*fetch.Def) *Event, strike func(*fetch.Def)) *EventList {
	return &EventList{begin: begin, strike: strike, byName: map[string]*Event{}, gone: map[string]*Event{}}
}

// Add adds definitions to the events of their names, and makes events that don't exist: for all
// definitions, or for none. The error is a *assess.DefError.
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

// takes returns an error if the event can't have d as a further definition. e may be nil.
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

// enter adds a new event to the list. mu is held.
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

// replace puts an event at another's index in the list. mu is held.
func (l *EventList) replace(was, is *Event) {
	is.at = was.at
	l.all[is.at] = is
}

// Retire removes definitions whose probes were removed. An event without definitions is marked as
// removed, and its counters stay.
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

// Drop undoes Add for definitions that could not be armed.
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

// Now lists the events that are not removed, in the order in which they were added.
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

// Definitions lists the definitions that are not removed.
func (l *EventList) Definitions() []*Definition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.defs)
}

// All lists the events, including removed ones.
func (l *EventList) All() []*Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// held calls fn with all events, including removed ones. While fn runs, the list doesn't change.
func (l *EventList) held(fn func(all []*Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l.all)
}

// Naming calls fn, which may ask whether names of events are taken. While fn runs, no name is
// taken or released.
func (l *EventList) Naming(fn func(taken func(group, event string) bool) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fn(func(group, event string) bool { return l.byName[group+"/"+event] != nil })
}

// without returns the elements of list that are not in some. The result is a new slice, so that the
// others can be collected.
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

// remove returns list without x. If x was in it, the result is a new slice, so that x can be
// collected.
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
