package probe

import (
	"cmp"
	"slices"

	"kprobe/probe/ring"
)

// spot is a place by its name, which is the same in every process.
type spot struct{ name, module string }

func (p *placed) spot() spot {
	at := spot{name: p.where.Name}
	if m := p.where.Module; m != nil && !m.Main {
		at.module = m.Name
	}
	return at
}

// byPlace is stats for each place by itself, by name. What the sink did not want
// any more, and what it lost, is known of events only.
func (e *event) byPlace() []Stats {
	counts := map[spot]ring.Counts{}
	live := map[spot]*Stats{}
	for b := e; b != nil; {
		b.mu.Lock()
		for at, c := range b.pastAt {
			c.Add(counts[at])
			counts[at] = c
		}
		for _, p := range b.probes {
			at := p.spot()
			c := p.tap.counters.Probe(p.id)
			c.Add(counts[at])
			counts[at] = c
			if b != e || e.removed {
				continue
			}
			st := live[at]
			if st == nil {
				st = &Stats{Disabled: true}
				live[at] = st
			}
			st.Disabled = st.Disabled && p.tap.disabled(p)
			st.Places++
			if !p.tap.optimized(p) {
				st.Trapped++
			}
		}
		before := b.before
		b.mu.Unlock()
		b = before
	}
	out := make([]Stats, 0, len(counts))
	for at, c := range counts {
		var st Stats
		if l := live[at]; l != nil {
			st = *l
		}
		st.Event, st.Place, st.Module = &e.Event, at.name, at.module
		c.Recorded = c.Hits - min(c.Hits, c.Filtered+c.Lost)
		st.Count(c)
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Module, b.Module))
	})
	return out
}
