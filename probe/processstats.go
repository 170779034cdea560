package probe

import (
	"cmp"
	"slices"

	"kprobe/internal/procfs"
	"kprobe/probe/ring"
)

func (s *engine) processStats() []ProcessStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	var out []ProcessStats
	names := map[int]string{}
	for _, e := range s.events {
		from := len(out)
		for pid, c := range e.byProcess() {
			name, ok := names[pid]
			if !ok {
				name, _ = procfs.Process(pid).Comm() // "" of one that has just ended
				names[pid] = name
			}
			var st Stats
			c.Recorded = c.Hits - min(c.Hits, c.Filtered+c.Lost+c.Limited)
			addCounts(&st, c)
			out = append(out, ProcessStats{Event: &e.Event, PID: pid, Comm: name, Counts: st.Counts()})
		}
		slices.SortFunc(out[from:], func(a, b ProcessStats) int { return cmp.Compare(a.PID, b.PID) })
	}
	return out
}

// byProcess adds up what the event has counted in processes that live, at places that it
// has there.
func (e *event) byProcess() map[int]ring.Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[int]ring.Counts{}
	for _, p := range e.probes {
		if p.feed.over.Load() {
			continue
		}
		c := p.feed.counters.Probe(p.id)
		c.Add(out[p.feed.pid])
		out[p.feed.pid] = c
	}
	return out
}
