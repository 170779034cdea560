package engine

import (
	"slices"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/results"
)

// ListEvents lists the events that there are now, in the order in which they were added.
func (s *Engine) ListEvents() []*results.Event {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	var out []*results.Event
	for _, e := range s.Events {
		if !e.Removed {
			out = append(out, &e.Event)
		}
	}
	return out
}

// AddEvents enters definitions under their events' names.
func (s *Engine) AddEvents(defs []*fetch.Def) ([]*Definition, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	var added []*Definition
	for _, d := range defs {
		name := d.Group + "/" + d.Event
		ev := s.ByName[name]
		if ev != nil && ev.user != nil {
			s.dropLocked(added)
			return nil, &assess.DefError{Def: d, Err: &InvalidProbeError{Field: "Name", Reason: "a registered probe has that event"}}
		}
		if ev != nil {
			for _, o := range ev.defs {
				if err := o.SameShape(d); err != nil {
					s.dropLocked(added)
					return nil, &assess.DefError{Def: d, Err: err}
				}
			}
		} else {
			ev = s.newEvent(d)
			s.ByName[name] = ev
		}
		ev.defs = append(ev.defs, d)
		s.noteStack(d)
		x := &Definition{Def: d, Ev: ev}
		s.Defs = append(s.Defs, x)
		added = append(added, x)
	}
	return added, nil
}

// newEvent makes an event, or one of the name of an event that was removed: it
// takes that one's place in the list, and its counters. s.mu is held.
func (s *Engine) newEvent(d *fetch.Def) *Event {
	u := s.Owner.HandlersOf(d)
	ev := &Event{user: u, count: !s.records(u), Event: results.Event{Def: d, Group: d.Group, Name: d.Event, Return: d.Kind == fetch.Return}}
	if u != nil {
		ev.off.Store(u.Disabled)
		u.Entered(ev)
	}
	name := d.Group + "/" + d.Event
	ev.Before = s.Gone[name]
	if ev.Before == nil {
		ev.at = len(s.Events)
		ev.bucket = ev.at
		s.Events = append(s.Events, ev)
		return ev
	}
	delete(s.Gone, name)
	ev.Before.fold()
	ev.bucket = ev.Before.bucket
	s.replace(ev.Before, ev)
	return ev
}

// replace puts an event in another's place in the list. s.mu is held.
func (s *Engine) replace(was, is *Event) {
	is.at = was.at
	s.Events[is.at] = is
}

// RetireEvents forgets definitions that were taken out. An event without any
// is removed, and its counters stay.
func (s *Engine) RetireEvents(list []*Definition) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Defs = without(s.Defs, list)
	for _, x := range list {
		x.Ev.defs = remove(x.Ev.defs, x.Def)
		s.Owner.Strike(x.Def)
		if len(x.Ev.defs) == 0 {
			name := x.Ev.Group + "/" + x.Ev.Name
			x.Ev.Removed = true
			delete(s.ByName, name)
			s.Gone[name] = x.Ev
		}
	}
}

// DropEvents takes back what AddEvents entered, as it could not be armed.
func (s *Engine) DropEvents(added []*Definition) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.dropLocked(added)
}

func (s *Engine) dropLocked(added []*Definition) {
	s.Defs = without(s.Defs, added)
	var dropped []*Event
	for _, x := range added {
		x.Ev.defs = remove(x.Ev.defs, x.Def)
		if len(x.Ev.defs) > 0 {
			continue
		}
		name := x.Ev.Group + "/" + x.Ev.Name
		delete(s.ByName, name)
		if x.Ev.Before == nil {
			dropped = append(dropped, x.Ev)
			continue
		}
		s.Gone[name] = x.Ev.Before
		s.replace(x.Ev, x.Ev.Before)
	}
	if len(dropped) == 0 {
		return
	}
	s.Events = without(s.Events, dropped)
	for i, e := range s.Events {
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
