package probe

import (
	"slices"

	"kprobe/fetch"
)

func (s *engine) listEvents() []*Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Event
	for _, e := range s.events {
		if !e.removed {
			out = append(out, &e.Event)
		}
	}
	return out
}

// addEvents enters definitions under their events' names.
func (s *engine) addEvents(defs []*fetch.Def) ([]*defOf, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var added []*defOf
	for _, d := range defs {
		name := d.Group + "/" + d.Event
		ev := s.byName[name]
		if ev != nil && ev.user != nil {
			s.dropLocked(added)
			return nil, &DefError{Def: d, Err: &InvalidProbeError{Field: "Name", Reason: "a registered probe has that event"}}
		}
		if ev != nil {
			for _, o := range ev.defs {
				if err := o.SameShape(d); err != nil {
					s.dropLocked(added)
					return nil, &DefError{Def: d, Err: err}
				}
			}
		} else {
			ev = s.newEvent(d)
			s.byName[name] = ev
		}
		ev.defs = append(ev.defs, d)
		s.noteStack(d)
		x := &defOf{def: d, ev: ev}
		s.defs = append(s.defs, x)
		added = append(added, x)
	}
	return added, nil
}

// newEvent makes an event, or one of the name of an event that was removed: it
// takes that one's place in the list, and its counters. s.mu is held.
func (s *engine) newEvent(d *fetch.Def) *event {
	u := s.owner.handlersOf(d)
	ev := &event{user: u, count: !s.records(u), Event: Event{Def: d, Group: d.Group, Name: d.Event, Return: d.Kind == fetch.Return}}
	if u != nil {
		ev.off.Store(u.disabled)
		u.entered(ev)
	}
	name := d.Group + "/" + d.Event
	ev.before = s.gone[name]
	if ev.before == nil {
		ev.at = len(s.events)
		ev.bucket = ev.at
		s.events = append(s.events, ev)
		return ev
	}
	delete(s.gone, name)
	ev.before.fold()
	ev.bucket = ev.before.bucket
	s.replace(ev.before, ev)
	return ev
}

// replace puts an event in another's place in the list. s.mu is held.
func (s *engine) replace(was, is *event) {
	is.at = was.at
	s.events[is.at] = is
}

// retireEvents forgets definitions that were taken out. An event without any
// is removed, and its counters stay.
func (s *engine) retireEvents(list []*defOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.defs = without(s.defs, list)
	for _, x := range list {
		x.ev.defs = remove(x.ev.defs, x.def)
		s.owner.strike(x.def)
		if len(x.ev.defs) == 0 {
			name := x.ev.Group + "/" + x.ev.Name
			x.ev.removed = true
			delete(s.byName, name)
			s.gone[name] = x.ev
		}
	}
}

func (s *engine) dropEvents(added []*defOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(added)
}

func (s *engine) dropLocked(added []*defOf) {
	s.defs = without(s.defs, added)
	var dropped []*event
	for _, x := range added {
		x.ev.defs = remove(x.ev.defs, x.def)
		if len(x.ev.defs) > 0 {
			continue
		}
		name := x.ev.Group + "/" + x.ev.Name
		delete(s.byName, name)
		if x.ev.before == nil {
			dropped = append(dropped, x.ev)
			continue
		}
		s.gone[name] = x.ev.before
		s.replace(x.ev, x.ev.before)
	}
	if len(dropped) == 0 {
		return
	}
	s.events = without(s.events, dropped)
	for i, e := range s.events {
		e.at = i
	}
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
