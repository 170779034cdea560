package engine

import (
	"slices"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/feed"
	"kprobe/probe/planner"
	"kprobe/probe/triggers"
)

// Placed is one definition of an event at one place of one target. There may be a hundred thousand: what takes
// a byte stands together, and what few have is elsewhere.
type Placed struct {
	Ev            *Event
	Def           *fetch.Def
	target        *Target
	feed          *Feed // nil until the probe has a number
	planner.Probe       // what plans need to know: its number, program and place, and how it is armed
	rare          *rarePlaced
	place         *assess.Place         // of the one request by which it is armed; nil: others are in rare, or there is none
	seq           uint64                // number in the order in which the feed's probes were added
	known         atomic.Pointer[known] // what was asked for already; nil: nothing
	pool          *pool                 // of the calls that breakpoints follow; nil until one does (instances)
	index         int32                 // where it is in the event's list
	kind          planner.Kind          // of the request
	removed       bool                  // it was removed: hits in progress are dropped
	Optimized     bool                  // it is a jump now
	wasOff        bool                  // it was off before DisableAll
	// Only return probes have these:
	watch watch
	// tails says that the function may leave by a jump to another function. Then a call that is
	// entered with the same slot may be the same call.
	tails bool
	// startsOver says that the function may jump to its own entry. Then a call that is entered with
	// the same slot may be the same call, too.
	startsOver bool
	// alone says that each exit is a hit by itself, which needs nothing from the entry.
	alone bool
	never bool // no instruction of the function returns
}

// rarePlaced is what few probes have. It is made before the probe has a number: from then on other goroutines
// read it.
type rarePlaced struct {
	user *Handlers // of the registered probe; nil: the probe comes from a definition
	// timeSlots are the offsets in its records of times that are values of the time stamp
	// counter; nil: times are nanoseconds, or there are none.
	timeSlots []int
	data      *watchpoint         // what it watches; nil: it is a probe of code
	triggers  []*triggers.Trigger // in the order of its program's conditions
	wants     []planner.Request   // the requests by which it is armed, unless Placed.place is the only one's
	bins      *placedBins         // the row in which its detours count hits; nil: they record them
	lands     *landing            // whose side it is, of kprobe's own
	pop       uint64              // bytes that a return probe's instruction pops beyond the address (ret imm16)
}

// rarely is what few probes have, for reading one member of it: the engine changes others while readers ask.
func (p *Placed) rarely() *rarePlaced {
	if p.rare == nil {
		return &noneRare
	}
	return p.rare
}

var noneRare rarePlaced // never changed

// rarer is where to set what few probes have.
func (p *Placed) rarer() *rarePlaced {
	if p.rare == nil {
		p.rare = &rarePlaced{}
	}
	return p.rare
}

func (p *Placed) user() *Handlers               { return p.rarely().user }
func (p *Placed) timeSlots() []int              { return p.rarely().timeSlots }
func (p *Placed) data() *watchpoint             { return p.rarely().data }
func (p *Placed) triggers() []*triggers.Trigger { return p.rarely().triggers }
func (p *Placed) bins() *placedBins             { return p.rarely().bins }
func (p *Placed) lands() *landing               { return p.rarely().lands }
func (p *Placed) pop() uint64                   { return p.rarely().pop }

// newPlaced makes a probe of an event. facts is what is known about it for planning.
func newPlaced(tg *Target, ev *Event, d *fetch.Def, facts planner.Probe) *Placed {
	p := &Placed{Ev: ev, Def: d, target: tg, Probe: facts}
	p.Owner = p
	return p
}

// PlacedOf is the probe of a planner's request.
func PlacedOf(w planner.Request) *Placed { return w.P.Owner.(*Placed) }

// want adds a request to those by which the probe is armed.
func (p *Placed) want(w planner.Request) {
	if w == p.request(w.Place, w.Kind) && p.place == nil && p.rarely().wants == nil {
		p.place, p.kind = w.Place, w.Kind
		return
	}
	x := p.rarer()
	if p.place != nil {
		x.wants, p.place = append(x.wants, p.request(p.place, p.kind)), nil
	}
	x.wants = append(x.wants, w)
}

// request is a request for the probe of which nothing else is known.
func (p *Placed) request(at *assess.Place, kind planner.Kind) planner.Request {
	return planner.Request{Place: at, P: &p.Probe, Kind: kind}
}

// wants yields the requests by which the probe is armed.
func (p *Placed) wants(yield func(planner.Request) bool) {
	if p.place != nil {
		yield(p.request(p.place, p.kind))
		return
	}
	for _, w := range p.rarely().wants {
		if !yield(w) {
			return
		}
	}
}

// patched yields the requests by which the probe is armed, and those of its exits.
func (p *Placed) patched(yield func(planner.Request) bool) {
	for w := range p.wants {
		if !yield(w) {
			return
		}
	}
	if p.ByExits != nil {
		for _, w := range p.ByExits.Exits {
			if !yield(w) {
				return
			}
		}
	}
}

// forgetWants forgets the requests by which the probe is armed.
func (p *Placed) forgetWants() {
	if p.place = nil; p.rare != nil {
		p.rare.wants = nil
	}
}

// returns reports whether it is a return probe.
func (p *Placed) returns() bool { return p.Def.Kind == fetch.Return }

// instances is the pool of a return probe.
func (p *Placed) instances() *pool {
	if p.pool == nil {
		p.pool = newPool(int(p.Most))
	}
	return p.pool
}

// leavesByTrap reports whether some of the probe's exits are breakpoints.
func (p *Placed) leavesByTrap() bool {
	for w := range p.wants {
		if st := p.target.Sites[w.Site.Addr]; st != nil && slices.Contains(st.exits, p) {
			return true
		}
	}
	return false
}

// known is what readers have asked a probe for. It is never changed.
type known struct {
	fn   string      // the function's readable name; "": it is not known yet
	read *feed.Probe // what its reader knows of it; nil: it had no record yet (Feed.read)
}

// learnt adds to what is known of the probe, and returns all of it. Any goroutine may call it.
func (p *Placed) learnt(add func(*known)) *known {
	for {
		was, now := p.known.Load(), known{}
		if was != nil {
			now = *was
		}
		add(&now)
		if p.known.CompareAndSwap(was, &now) {
			return &now
		}
	}
}
