package engine

import (
	"cmp"
	"slices"

	"kprobe/internal/procfs"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// ProcessStats returns the counters of every event in every current process.
func (s *Engine) ProcessStats() (out []results.ProcessStats) {
	names := map[int]string{}
	s.Events.held(func(all []*Event) {
		look(all)
		for _, e := range all {
			out = append(out, e.processStats(names)...)
		}
	})
	return out
}

// processStats returns the event's counters in every current process, sorted by process number. names
// caches the names of processes.
func (e *Event) processStats(names map[int]string) (out []results.ProcessStats) {
	for pid, c := range e.byProcess() {
		name, ok := names[pid]
		if !ok {
			name, _ = procfs.Process(pid).Comm() // "" of one that has just ended
			names[pid] = name
		}
		var st results.Stats
		c.Recorded = c.Hits - min(c.Hits, c.Filtered+c.Lost+c.Limited)
		AddCounts(&st, c)
		out = append(out, results.ProcessStats{Event: &e.Event, PID: pid, Comm: name, Counts: st.Counts()})
	}
	slices.SortFunc(out, func(a, b results.ProcessStats) int { return cmp.Compare(a.PID, b.PID) })
	return out
}

// byProcess adds up the event's counters in each current process, at the places that it has there now.
func (e *Event) byProcess() map[int]ring.Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[int]ring.Counts{}
	for _, p := range e.probes {
		if p.feed.over.Load() {
			continue
		}
		c := p.feed.counters.Probe(p.Id)
		c.Add(out[p.feed.Pid])
		out[p.feed.Pid] = c
	}
	return out
}
