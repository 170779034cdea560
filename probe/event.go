package probe

import (
	"sync"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// event is an Event with its counters and its places.
type event struct {
	Event
	defs     []*fetch.Def
	count    bool // counts only
	places   atomic.Int64
	recorded atomic.Uint64 // given to the sink
	lost     atomic.Uint64 // taken from a ring and not given
	dropped  atomic.Uint64 // taken from a ring after the sink had ended

	mu     sync.Mutex
	probes []*placed // every place there ever was: their counters add up
}

func (e *event) join(p *placed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probes = append(e.probes, p)
}

// stats adds up what was counted in the memory files. What the sink did not
// want any more is no hit of this trace.
func (e *event) stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := Stats{Event: &e.Event, Places: int(e.places.Load()), Recorded: e.recorded.Load(), Lost: e.lost.Load()}
	disabled := len(e.probes) > 0
	for _, p := range e.probes {
		c := p.tap.counters.Probe(p.id)
		st.Hits += c.Hits
		st.Filtered += c.Filtered
		st.Lost += c.Lost
		st.Missed += c.Missed
		disabled = disabled && p.tap.disabled(p)
		if !p.tap.optimized(p) {
			st.Trapped++
		}
	}
	st.Disabled = disabled
	if e.count {
		st.Recorded = st.Hits - min(st.Hits, st.Filtered+st.Lost)
	}
	st.Hits -= min(st.Hits, e.dropped.Load())
	return st
}

// placed is one definition of an event at one place of one target.
type placed struct {
	ev     *event
	def    *fetch.Def
	prog   *fetch.Program
	target *target
	tap    *tap
	id     uint32 // in the memory file
	// timeSlots are where, in its records, values of time are raw counts of
	// the time stamp counter; nil: they are nanoseconds, or there are none.
	timeSlots []int
	where     symbols.Site
	tactic    plan.Tactic // how it is armed
	why       string      // why it isn't a better tactic
	optimized bool        // by a jump, now
	wasOff    bool        // switched off before the end of the run switched all off
	fn        string      // name of the function, for returns
	// Of return probes:
	pool *pool
	// followed is set where its calls return by landings, as long as
	// optimized says.
	followed *followed
	pop      uint64 // bytes that its return instruction pops beyond the address (ret imm16)
	// tails says that the function may leave by a jump to another function:
	// then a call with the same slot may be the same call, jumped on.
	tails bool
	goABI bool // its calls are recognised by goroutine, its exits are sites
}
