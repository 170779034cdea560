package probe

import (
	"strings"
	"time"

	"kprobe/probe/engine"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// LiveProbe is a probe at one place, in a session that Live shows.
type LiveProbe struct {
	Group, Event string
	Addr         symbols.Addr
	Return       bool
	Optimized    bool // a jump: hits take no trap
	Disabled     bool
	Gone         bool // its code is unmapped
	// Waiting says that the probe has no place yet, because its library isn't mapped. Gone
	// is then true as well, and Addr is 0.
	Waiting bool
	// Tactic is the kind of patch at the place; TacticRefused if it isn't known.
	Tactic plan.Tactic
	Armed  uint64 // CLOCK_MONOTONIC, ns
	// Age is the time between Armed and the call of Probes; 0 if the probe is Waiting.
	Age    time.Duration
	Counts ring.Counts
}

// Probes lists the probes as of the last Refresh, in the order in which they were armed.
func (l *Live) Probes() []LiveProbe {
	out := l.probes()
	for _, x := range l.more {
		out = append(out, x.probes()...)
	}
	return out
}

func (l *Live) probes() []LiveProbe {
	var out []LiveProbe
	now := engine.NewClock().Now()
	for i := range l.snap.Probes {
		p := &l.snap.Probes[i]
		group, event, _ := strings.Cut(p.Name, "/")
		out = append(out, LiveProbe{
			Group: group, Event: event, Addr: symbols.Addr(p.Addr), Return: p.Flags&ring.FlagReturn != 0,
			Optimized: p.Flags&ring.FlagOptimized != 0, Gone: p.Flags&ring.FlagGone != 0,
			Disabled: p.Flags&ring.FlagEnabled == 0, Waiting: p.Flags&ring.FlagGone != 0 && p.Addr == 0, Tactic: l.tactic(p), Armed: p.Armed, Age: age(p, now),
			Counts: counted(p),
		})
	}
	return out
}

// age returns how long a probe has been armed. Both times are of CLOCK_MONOTONIC, and another
// process wrote the earlier one. A probe that waits isn't armed.
func age(p *ring.ProbeState, now uint64) time.Duration {
	if p.Addr == 0 || p.Armed == 0 || p.Armed > now {
		return 0
	}
	return time.Duration(now - p.Armed)
}

// tactic returns how a probe's place is patched. If the descriptor doesn't say it, the table of
// sites does, whose entries begin at the first changed byte.
func (l *Live) tactic(p *ring.ProbeState) plan.Tactic {
	switch {
	case p.Tactic != 0:
		return plan.Tactic(p.Tactic)
	case p.Flags&ring.FlagOptimized == 0:
		return plan.Breakpoint
	}
	for _, s := range l.sites {
		if s.Addr == p.Addr && s.Tactic != 0 {
			return plan.Tactic(s.Tactic)
		}
	}
	return plan.Refused
}

// counted returns a probe's counters. Hits that were counted without a record count as
// recorded.
func counted(p *ring.ProbeState) ring.Counts {
	c := p.Counts
	c.Recorded, c.Counted = c.Recorded+c.Counted, 0
	return c
}

// Stats returns the counters of each event as of the last Refresh, summed over its places, in
// the order in which they were armed. Hits whose records are still in the rings appear at most
// a tenth of a second late, unless the tracer is kept from running; Recorded lags by them. An
// event is Disabled if all its places are.
func (l *Live) Stats() []Stats {
	var out []Stats
	at := map[string]int{}
	for _, p := range l.Probes() {
		name := p.Group + "/" + p.Event
		if i, seen := at[name]; seen {
			st := p.Stats()
			out[i].Merge(&st)
			continue
		}
		at[name] = len(out)
		out = append(out, p.Stats())
	}
	return out
}

// Stats returns the probe's counters as those of an event with this one place.
func (p *LiveProbe) Stats() Stats {
	s := Stats{Event: &Event{Group: p.Group, Name: p.Event, Return: p.Return}, Age: p.Age, Disabled: p.Disabled}
	if !p.Waiting {
		s.Places = 1
	}
	engine.AddCounts(&s, p.Counts)
	return s
}
