package probe

import (
	"context"
	"slices"
)

// Link stands for the events of one Session.Add, to read, switch and remove them together. If
// several Adds give places to the same event, each of their links means the whole event. Any
// goroutine may use it.
type Link struct {
	s      *Session
	events []*Event
}

// Events returns the link's events, in the order of the definitions, each once.
func (l *Link) Events() []*Event { return slices.Clone(l.events) }

// Stats returns the counters of the link's events, in their order (see Session.Stats). If an
// event was removed and its name was added again, it is left out: the new event continues its
// counts.
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

// Enable switches the link's events on (see Session.Enable). ErrNoEvent says that one of them
// was removed; then nothing was switched.
func (l *Link) Enable() error { return l.s.Enable(true, l.events...) }

// Disable switches the link's events off (see Session.Enable).
func (l *Link) Disable() error { return l.s.Enable(false, l.events...) }

// Close removes those of the link's events that are still there. Errors are those of
// Session.Remove, except ErrNoEvent.
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
