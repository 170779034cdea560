package engine

import (
	"cmp"
	"slices"

	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// spot is a place by its name, which is the same in every process.
type spot struct{ name, module string }

func (p *Placed) spot() spot {
	at := spot{name: p.Where.Name}
	if m := p.Where.Module; m != nil && !m.Main {
		at.module = m.Name
	}
	return at
}

// spotCounts are counters by place. Most events have few places, and a session may have had many
// events. So few places are a list: a map would take most of an event's memory.
type spotCounts struct {
	few  []spotCount
	many map[spot]ring.Counts // instead of few
}

type spotCount struct {
	at     spot
	counts ring.Counts
}

// fewSpots is the number of places up to which they are a list.
const fewSpots = 8

func (s *spotCounts) add(at spot, c ring.Counts) {
	if s.many == nil {
		if i := slices.IndexFunc(s.few, func(x spotCount) bool { return x.at == at }); i >= 0 {
			s.few[i].counts.Add(c)
			return
		}
		if len(s.few) < fewSpots {
			s.few = append(s.few, spotCount{at, c})
			return
		}
		s.many = make(map[spot]ring.Counts, 2*fewSpots)
		for _, x := range s.few {
			s.many[x.at] = x.counts
		}
		s.few = nil
	}
	c.Add(s.many[at])
	s.many[at] = c
}

// all yields the places in no particular order.
func (s *spotCounts) all(yield func(spot, ring.Counts) bool) {
	for _, x := range s.few {
		if !yield(x.at, x.counts) {
			return
		}
	}
	for at, c := range s.many {
		if !yield(at, c) {
			return
		}
	}
}

// byPlace is stats for each place, sorted by name. Hits that came after the sink had ended, or that it
// lost, are only known for the whole event, so they are counted here.
func (e *Event) byPlace() []results.Stats {
	counts := map[spot]ring.Counts{}
	live := map[spot]*results.Stats{}
	for b := e; b != nil; {
		b.mu.Lock()
		for at, c := range b.pastAt.all {
			c.Add(counts[at])
			counts[at] = c
		}
		for _, p := range b.probes {
			at := p.spot()
			c := p.feed.counters.Probe(p.Id)
			c.Add(counts[at])
			counts[at] = c
			if b != e || e.removed {
				continue
			}
			st := live[at]
			if st == nil {
				st = &results.Stats{Disabled: true}
				live[at] = st
			}
			st.Disabled = st.Disabled && p.feed.disabled(p)
			st.Places++
			if !p.feed.optimized(p) {
				st.Trapped++
			}
		}
		before := b.Before
		b.mu.Unlock()
		b = before
	}
	out := make([]results.Stats, 0, len(counts))
	for at, c := range counts {
		var st results.Stats
		if l := live[at]; l != nil {
			st = *l
		}
		st.Event, st.Place, st.Module = &e.Event, at.name, at.module
		c.Recorded = c.Hits - min(c.Hits, c.Filtered+c.Lost+c.Limited)
		AddCounts(&st, c)
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b results.Stats) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Module, b.Module))
	})
	return out
}
