package probe

import "kprobe/probe/results"

// Stats gives the counters of every event, in order of definition: every hit
// whose record was finished before is among them.
func (s *Session) Stats() []Stats { return s.engine.Stats() }

// PlaceStats gives the counters of every place of every event by itself, in
// order of definition and of names; those of a place in several processes, or
// that was there more than once, are added up. Recorded holds what is still to
// be read.
func (s *Session) PlaceStats() []Stats { return s.engine.PlaceStats() }

// ProcessStats gives the counters of every event in every process that is traced now, in
// order of definition and of processes. Recorded holds what is still to be read.
func (s *Session) ProcessStats() []ProcessStats { return s.engine.ProcessStats() }

// Bins gives what was counted by Options.Bin until now, in no order.
func (s *Session) Bins() []results.Bins { return s.engine.Binned() }

// Events lists the events that the session has now, in the order in which they
// were added.
func (s *Session) Events() []*Event { return s.engine.Events.Now() }

// Enable switches events on or off, at once and without a stop: an event that
// is off takes no hits, and counts none. It may be called at any time, by any
// goroutine. ErrNoEvent changes nothing.
func (s *Session) Enable(on bool, events ...*Event) error { return s.engine.Enable(on, events) }

// DisablePlaces switches the probes at places off, of all events: those that pick
// names, by the function or place and the base name of its file, as in PlaceStats. It
// gives how many there were.
func (s *Session) DisablePlaces(pick func(place, module string) bool) int {
	return s.engine.DisablePlaces(pick)
}
