package engine

import (
	"cmp"
	"slices"

	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// spot is a place by what gives its name, which is the same in every process.
type spot struct {
	symbol string // of the function; with off it gives the name, unless that is known
	off    uint64
	named  string
	module string
}

// spotName is the name that results have. Several spots may have the same.
type spotName struct{ place, module string }

func (p *Placed) spot() spot {
	at := spot{p.Where.Func.Symbol.Name, p.Where.Offset, p.Where.Named, p.otherModule()}
	if at.symbol == "" {
		at.named = p.Where.Name() // its address
	}
	return at
}

// otherModule is the name of the place's module; "" for the main program.
func (p *Placed) otherModule() string {
	if m := p.Where.Module; m != nil && !m.Main {
		return m.Name
	}
	return ""
}

// shown makes the spot's name, as symbols.Site.Name does.
func (s spot) shown() spotName {
	fn := symbols.Func{Symbol: symbols.Symbol{Name: s.symbol}}
	w := symbols.Site{Named: s.named, Func: &fn, Offset: s.off}
	return spotName{w.Name(), s.module}
}

// shown is the place's name. It is made when it is first asked for, and kept: names of thousands of places
// are asked for every second, or never.
func (p *Placed) shown() spotName {
	if p.Where.Named != "" || p.Where.Func.Symbol.Name == "" {
		return spotName{p.Where.Name(), p.otherModule()}
	}
	return spotName{symbols.OffsetName(p.funcName(), p.Where.Offset), p.otherModule()}
}

// funcName is the readable name of the function, kept like the place's. Any goroutine may call it.
func (p *Placed) funcName() string {
	if k := p.known.Load(); k != nil && k.fn != "" {
		return k.fn
	}
	name := p.Where.FuncName()
	return p.learnt(func(k *known) { k.fn = name }).fn
}

// returnsFrom is the readable name of a return probe's function; "" for other probes.
func (p *Placed) returnsFrom() string {
	if !p.Ev.Return {
		return ""
	}
	return p.funcName()
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
	counts := map[spotName]ring.Counts{}
	live := map[spotName]*results.Stats{}
	for b := e; b != nil; {
		b.mu.Lock()
		for past, c := range b.pastAt.all {
			at := past.shown()
			c.Add(counts[at])
			counts[at] = c
		}
		for _, p := range b.probes {
			at := p.shown()
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
		st.Event, st.Place, st.Module = &e.Event, at.place, at.module
		c.Recorded = c.Hits - min(c.Hits, c.Filtered+c.Lost+c.Limited)
		AddCounts(&st, c)
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b results.Stats) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Module, b.Module))
	})
	return out
}
