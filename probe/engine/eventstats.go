package engine

import "kprobe/probe/results"

// Stats gives the counters of every event, in order of definition, but for those whose places
// other definitions have.
func (s *Engine) Stats() []results.Stats {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.look()
	out := make([]results.Stats, 0, len(s.Events))
	for _, e := range s.Events {
		if e.idle() {
			continue
		}
		st := e.stats()
		if st.Places == 0 && !e.Removed && s.Alone.Load() {
			st.Places = int(e.most.Load())
		}
		out = append(out, st)
	}
	return out
}

// PlaceStats gives the counters of every place of every event by itself.
func (s *Engine) PlaceStats() []results.Stats {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.look()
	var out []results.Stats
	for _, e := range s.Events {
		out = append(out, e.byPlace()...)
	}
	return out
}

// look brings all events' counters up to date. mu is held.
func (s *Engine) look() {
	looked := map[*Feed]bool{}
	for _, e := range s.Events {
		e.look(looked)
	}
}

// Unarmed gives the events that never had a place.
func (s *Engine) Unarmed() (out []*results.Event) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, e := range s.Events {
		if e.most.Load() == 0 && !e.Removed && !e.idle() {
			out = append(out, &e.Event)
		}
	}
	return out
}
