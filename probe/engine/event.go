package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/feed"
	"kprobe/probe/planner"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/triggers"
)

// Event is an Event with its counters and its places.
type Event struct {
	results.Event
	defs   []*fetch.Def
	user   *Handlers // of the probe that was registered for it; nil: it was defined
	places atomic.Int64
	most   atomic.Int64 // places at a time
	counts feed.Counts

	Before  *Event      // the removed event of that name, whose counters this one's go on
	spare   atomic.Bool // other definitions have all places that it was found at
	off     atomic.Bool // switched off: places that come are off, too
	count   bool        // counts only
	removed bool        // guarded by the list's mu; its counters are kept
	at      int         // in the list; guarded by its mu
	bucket  int         // number of its bucket, of hits in a second

	mu       sync.Mutex
	waiting  []waitingAt            // where it waits for its library
	probes   []*Placed              // every place whose number is its own: their counters add up
	past     ring.Counts            // of places whose numbers were given to others
	pastBins map[binsKey]*ring.Bins // theirs
	pastAt   spotCounts
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

// idle reports whether nothing is to be said of the event: others have its places.
func (e *Event) idle() bool { return e.spare.Load() && e.most.Load() == 0 }

func (e *Event) join(p *Placed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probes = append(e.probes, p)
}

// part keeps the counters of a place whose number is about to become another's.
func (e *Event) part(p *Placed, c ring.Counts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.past.Add(c)
	e.pastAt.add(p.spot(), c)
	for i, x := range slices.Backward(e.probes) { // those that came last go first, where many do
		if x == p {
			e.probes = slices.Delete(e.probes, i, i+1)
			break
		}
	}
	if len(e.probes) == 0 {
		e.probes = nil
	}
}

// fold takes the counters of the event before over, once they are final, so
// that no chain of events grows.
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
	for at, c := range b.pastAt.all { // final: nobody changes it
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

// look brings the counters of the event's places up to date with what lies in
// the rings. done are the feeds where that is done.
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

// stats adds up what was counted in the memory files as of the last look. What the
// sink did not want any more is no hit of this trace.
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

// Own is stats without what the removed event of that name counted.
func (e *Event) Own() results.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := results.Stats{Event: &e.Event, Places: int(e.places.Load())}
	all := e.past
	disabled := len(e.probes) > 0
	for _, p := range e.probes {
		all.Add(p.feed.counters.Probe(p.Id))
		disabled = disabled && p.feed.disabled(p)
		if p.data != nil {
			st.Watched++
		} else if !p.feed.optimized(p) {
			st.Trapped++
		}
	}
	st.Disabled = disabled
	// What was read counts when the sink has it.
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

// newPlaced makes a probe of an event, with what plans know of it by now.
func newPlaced(tg *Target, ev *Event, d *fetch.Def, facts planner.Probe) *Placed {
	p := &Placed{Ev: ev, Def: d, target: tg, Probe: facts}
	p.Owner = p
	return p
}

// PlacedOf is the probe that a request of a plan is of.
func PlacedOf(w planner.Request) *Placed { return w.P.Owner.(*Placed) }

// Placed is one definition of an event at one place of one target.
type Placed struct {
	Ev            *Event
	Def           *fetch.Def
	user          *Handlers // of the probe that was registered; nil: it was defined
	target        *Target
	feed          *Feed
	planner.Probe // what plans know of it: its number, program and place, and how it is armed
	// timeSlots are where, in its records, values of time are raw counts of
	// the time stamp counter; nil: they are nanoseconds, or there are none.
	timeSlots []int
	data      *watchpoint         // what it watches; nil: it is at code
	triggers  []*triggers.Trigger // by the numbers of its program's conditions
	wants     []planner.Request   // what it takes to arm it
	seq       uint64              // order in which the target's places came
	removed   bool                // it was taken out: hits under way are nobody's
	Optimized bool                // by a jump, now
	bins      *placedBins         // what its detours count instead of recording; nil: they record
	wasOff    bool                // switched off before the end of the run switched all off
	fn        string              // readable name of the function, for returns
	read      *feed.Probe         // what its feed's reader knows of it
	// Of return probes:
	pool  *pool
	watch watch
	pop   uint64 // bytes that its return instruction pops beyond the address (ret imm16)
	// tails says that the function may leave by a jump to another function:
	// then a call with the same slot may be the same call, jumped on.
	tails bool
	// alone says that each of its exits is a hit by itself: it needs nothing of
	// the entry.
	alone bool
	never bool // no instruction of the function returns
}

// leavesByTrap reports whether some of its exits are breakpoints.
func (p *Placed) leavesByTrap() bool {
	for _, w := range p.wants {
		if st := p.target.Sites[w.Site.Addr]; st != nil && slices.Contains(st.exits, p) {
			return true
		}
	}
	return false
}

// AddCounts adds counters of a memory file to an event's.
func AddCounts(s *results.Stats, c ring.Counts) {
	s.Count(results.Counts{Hits: c.Hits, Recorded: c.Recorded, Filtered: c.Filtered, Lost: c.Lost, Limited: c.Limited, Unfinished: c.Unfinished, Missed: c.Missed})
}

// countsOf are an event's counters as a memory file has them.
func countsOf(s *results.Stats) ring.Counts {
	c := s.Counts()
	return ring.Counts{Hits: c.Hits, Recorded: c.Recorded, Filtered: c.Filtered, Lost: c.Lost, Limited: c.Limited, Unfinished: c.Unfinished, Missed: c.Missed}
}
