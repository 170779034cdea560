package engine

import "kprobe/probe/results"

// Stats returns the counters of every event, in order of definition, without idle events.
func (s *Engine) Stats() (out []results.Stats) {
	s.Events.held(func(all []*Event) {
		look(all)
		out = make([]results.Stats, 0, len(all))
		for _, e := range all {
			if e.idle() {
				continue
			}
			st := e.stats()
			if st.Places == 0 && !e.removed && s.Alone.Load() {
				st.Places = int(e.most.Load())
			}
			out = append(out, st)
		}
	})
	return out
}

// PlaceStats returns the counters of each place of each event.
func (s *Engine) PlaceStats() (out []results.Stats) {
	s.Events.held(func(all []*Event) {
		look(all)
		for _, e := range all {
			out = append(out, e.byPlace()...)
		}
	})
	return out
}

// look includes the records that are still in the rings in the events' counters.
func look(all []*Event) {
	looked := map[*Feed]bool{}
	for _, e := range all {
		e.look(looked)
	}
}

// Unarmed lists the events that never had an armed place, without removed and idle ones.
func (s *Engine) Unarmed() (out []*results.Event) {
	s.Events.held(func(all []*Event) {
		for _, e := range all {
			if e.most.Load() == 0 && !e.removed && !e.idle() {
				out = append(out, &e.Event)
			}
		}
	})
	return out
}
