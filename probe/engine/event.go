package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/feed"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// Event is an event of the session, with its probes and their counters.
type Event struct {
	results.Event
	defs   []*fetch.Def
	user   *Handlers    // of the registered probe; nil: the event comes from a definition
	places atomic.Int64 // number of armed places
	most   atomic.Int64 // the largest number of armed places so far
	counts feed.Counts

	Before  *Event      // the removed event of the same name, whose counters this one continues; nil: none
	spare   atomic.Bool // its definitions left all their places to others (fetch.Def.Except)
	off     atomic.Bool // switched off: new places are switched off, too
	count   bool        // hits are only counted
	removed bool        // removed, with its counters kept; guarded by the list's mu
	at      int         // index in the list; guarded by the list's mu
	bucket  int         // number of the bucket that counts its hits in a second

	mu       sync.Mutex
	waiting  []waitingAt            // the processes where it waits for its library
	probes   []*Placed              // its probes that have a number, in any order; their counters are added up
	past     ring.Counts            // counters of its probes whose numbers were released
	pastBins map[binsKey]*ring.Bins // distributions of those probes
	pastAt   spotCounts             // counters of those probes, by place
}

// newEvent makes the event of a definition.
func (s *Engine) newEvent(d *fetch.Def) *Event {
	u := s.Owner.HandlersOf(d)
	ev := &Event{user: u, count: !s.records(u), Event: results.Event{Def: d, Group: d.Group, Name: d.Event, Return: d.Kind == fetch.Return}}
	if u != nil {
		ev.off.Store(u.Disabled)
		u.Entered(ev)
	}
	return ev
}

// idle reports whether the event is not to be shown: its definitions left all their places to
// others, and it never had one.
func (e *Event) idle() bool { return e.spare.Load() && e.most.Load() == 0 }

func (e *Event) join(p *Placed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.index = int32(len(e.probes))
	e.probes = append(e.probes, p)
}

// part removes a probe whose number is about to be released, and keeps its counters c.
func (e *Event) part(p *Placed, c ring.Counts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.past.Add(c)
	e.pastAt.add(p.spot(), c)
	e.without(p)
}

// leave removes a probe that has counted nothing, and whose number is about to be released.
func (e *Event) leave(p *Placed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.without(p)
}

// without removes a probe from the list. The caller holds mu.
func (e *Event) without(p *Placed) {
	last := len(e.probes) - 1
	if i := int(p.index); i <= last && e.probes[i] == p {
		moved := e.probes[last]
		e.probes[i], moved.index = moved, int32(i)
		e.probes[last] = nil
		e.probes = e.probes[:last]
	}
	if len(e.probes) == 0 {
		e.probes = nil
	}
}

// fold adds the counters of Before once they are final, and drops it, so that chains of removed
// events stay short.
func (e *Event) fold() {
	b := e.Before
	if b == nil {
		return
	}
	b.fold()
	b.mu.Lock()
	final := len(b.probes) == 0 && b.Before == nil
	b.mu.Unlock()
	if !final {
		return
	}
	was := b.stats()
	e.mu.Lock()
	defer e.mu.Unlock()
	for at, c := range b.pastAt.all { // needs no lock: b is final
		e.pastAt.add(at, c)
	}
	for k, n := range b.pastBins {
		addBins(&e.pastBins, k, n)
	}
	e.Before = nil
	e.past.Add(countsOf(&was))
	e.counts.Recorded.Add(was.Recorded)
}

// turn switches the event on or off.
func (e *Event) turn(on bool) {
	e.off.Store(!on)
	e.mu.Lock()
	list, waiting := slices.Clone(e.probes), slices.Clone(e.waiting)
	e.mu.Unlock()
	for _, w := range waiting {
		w.turn(on)
	}
	for _, p := range list {
		p.feed.turn(p, on)
	}
}

// look includes the records that are still in the rings in the event's counters. done has the feeds
// where this is done already.
func (e *Event) look(done map[*Feed]bool) {
	e.mu.Lock()
	before := e.Before
	for _, p := range e.probes {
		if !done[p.feed] {
			done[p.feed] = true
			p.feed.Rings.Look()
		}
	}
	e.mu.Unlock()
	if before != nil {
		before.look(done)
	}
}

// stats adds up the event's counters as of the last look, and those of Before. Hits that came
// after the sink had ended don't count.
func (e *Event) stats() results.Stats {
	st := e.Own()
	e.mu.Lock()
	b := e.Before
	e.mu.Unlock()
	if b != nil {
		was := b.stats()
		st.Count(was.Counts())
	}
	return st
}

// Own is stats without the counters of Before.
func (e *Event) Own() results.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := results.Stats{Event: &e.Event, Places: int(e.places.Load())}
	all := e.past
	disabled := len(e.probes) > 0
	for _, p := range e.probes {
		all.Add(p.feed.counters.Probe(p.Id))
		disabled = disabled && p.feed.disabled(p)
		if p.data() != nil {
			st.Watched++
		} else if !p.feed.optimized(p) {
			st.Trapped++
		}
	}
	st.Disabled = disabled
	// A record counts as recorded when the sink has it.
	all.Recorded = e.counts.Recorded.Load() + all.Counted
	all.Lost += e.counts.Lost.Load()
	AddCounts(&st, all)
	if e.count {
		st.Recorded = st.Hits - min(st.Hits, st.Filtered+st.Lost+st.Limited)
	}
	st.Hits -= min(st.Hits, e.counts.Dropped.Load())
	if e.removed {
		st.Disabled = false
	} else if len(e.probes) == 0 {
		st.Disabled = e.off.Load()
	}
	return st
}

// AddCounts adds counters of a memory file to an event's stats.
func AddCounts(s *results.Stats, c ring.Counts) {
	s.Count(results.Counts{Hits: c.Hits, Recorded: c.Recorded, Filtered: c.Filtered, Lost: c.Lost, Limited: c.Limited, Unfinished: c.Unfinished, Missed: c.Missed})
}

// countsOf converts an event's stats to counters of a memory file.
func countsOf(s *results.Stats) ring.Counts {
	c := s.Counts()
	return ring.Counts{Hits: c.Hits, Recorded: c.Recorded, Filtered: c.Filtered, Lost: c.Lost, Limited: c.Limited, Unfinished: c.Unfinished, Missed: c.Missed}
}
