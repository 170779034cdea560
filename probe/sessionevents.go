package probe

import "kprobe/probe/results"

// Stats returns the counters of every event, in order of definition. They include every hit
// whose record was complete before the call.
func (s *Session) Stats() []Stats { return s.engine.Stats() }

// PlaceStats returns the counters of each place of each event, in order of definition and of
// names. A place in several processes, or one that was armed more than once, is summed up.
// Recorded includes records that are still to be read.
func (s *Session) PlaceStats() []Stats { return s.engine.PlaceStats() }

// ProcessStats returns the counters of each event in each process that is traced now, in order
// of definition and of processes. Recorded includes records that are still to be read.
func (s *Session) ProcessStats() []ProcessStats { return s.engine.ProcessStats() }

// Bins returns what Options.Bin has counted so far, in no particular order.
func (s *Session) Bins() []results.Bins { return s.engine.Binned() }

// Events lists the session's present events, in the order in which they were added.
func (s *Session) Events() []*Event { return s.engine.Events.Now() }

// Enable switches events on or off, at once and without a stop. An event that is off takes no
// hits and counts none. Any goroutine may call it, at any time. If the error is ErrNoEvent,
// nothing was switched.
func (s *Session) Enable(on bool, events ...*Event) error { return s.engine.Enable(on, events) }

// DisablePlaces switches probes off, of all events, at the places for which pick returns true.
// pick gets the function or place, and the base name of its file, as PlaceStats has them.
// DisablePlaces returns how many probes it switched off.
func (s *Session) DisablePlaces(pick func(place, module string) bool) int {
	return s.engine.DisablePlaces(pick)
}
