package probe

import (
	"context"
	"slices"
)

// Link is what an Add has put in: the events of its definitions, by which they are looked
// at, switched and taken out together. An event to which several Adds gave places is one,
// with all of them. It may be used by any goroutine.
type Link struct {
	s      *Session
	events []*Event
}

// Events are the link's events, in the order of the definitions, each once.
func (l *Link) Events() []*Event { return slices.Clone(l.events) }

// Stats gives the counters of the link's events, in their order; see Session.Stats. One
// that was taken out, and whose name came again, is left out: the new event counts on.
func (l *Link) Stats() []Stats {
	all := map[*Event]Stats{}
	for _, st := range l.s.Stats() {
		all[st.Event] = st
	}
	out := make([]Stats, 0, len(l.events))
	for _, ev := range l.events {
		if st, ok := all[ev]; ok {
			out = append(out, st)
		}
	}
	return out
}

// Enable has the link's events take hits again; see Session.Enable. ErrNoEvent changes
// nothing: one of them was taken out.
func (l *Link) Enable() error { return l.s.Enable(true, l.events...) }

// Disable has the link's events take no hits, and count none; see Session.Enable.
func (l *Link) Disable() error { return l.s.Enable(false, l.events...) }

// Close takes out those of the link's events that are in yet; see Session.Remove, whose
// errors, but for ErrNoEvent, are its own.
func (l *Link) Close(ctx context.Context) error {
	there := map[*Event]bool{}
	for _, ev := range l.s.Events() {
		there[ev] = true
	}
	var list []*Event
	for _, ev := range l.events {
		if there[ev] {
			list = append(list, ev)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return l.s.Remove(ctx, list...)
}
