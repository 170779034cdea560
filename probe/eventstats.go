package probe

func (s *engine) stats() []Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	out := make([]Stats, 0, len(s.events))
	for _, e := range s.events {
		st := e.stats()
		if st.Places == 0 && !e.removed && s.alone.Load() {
			st.Places = int(e.most.Load())
		}
		out = append(out, st)
	}
	return out
}

func (s *engine) placeStats() []Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	var out []Stats
	for _, e := range s.events {
		out = append(out, e.byPlace()...)
	}
	return out
}

// look brings all events' counters up to date. mu is held.
func (s *engine) look() {
	looked := map[*feed]bool{}
	for _, e := range s.events {
		e.look(looked)
	}
}

// unarmed gives the events that never had a place.
func (s *engine) unarmed() (out []*Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.most.Load() == 0 && !e.removed {
			out = append(out, &e.Event)
		}
	}
	return out
}
