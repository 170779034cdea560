package engine

import (
	"time"

	"kprobe/fetch"
	"kprobe/probe/feed"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// fill fills the session's fetch context from a stopped thread. From now until the stop is answered
// (Handler.stepping), readers know that hits of this time may still come (Engine.busy).
func (s *Engine) fill(tg *Target, th *thread) error {
	regs, err := th.t.Regs()
	if err != nil {
		return err
	}
	s.at, s.jumped = th, false
	c := &s.ctx
	tracee.FetchRegs(regs, &s.regs)
	c.Regs = &s.regs
	c.Mem = tracee.Loads{Process: tg.Proc}
	c.Vector = th.vector
	c.Comm = th.t.Comm()
	c.PID, c.TID = tg.Proc.PID(), th.t.TID()
	c.CPU = th.t.CPU()
	// This time stamp must be stored before the hit's own is taken: see ring.Options.Busy. An
	// atomic store is complete before the code that follows it.
	s.busy.Store(s.counter.TSC())
	s.now, s.tsc = s.clock.Now(), s.counter.TSC()
	c.Time = s.now
	c.ReadLink = tg.readLink
	c.Entry, c.Watched = nil, &s.watched
	return nil
}

// record takes a hit of a probe: it evaluates the probe's program in the session's context, counts or
// records the hit, and carries out triggers. entry has the values of the call's entry, if any. ret is
// the return address, 0 at an entry.
func (s *Engine) record(p *Placed, entry []byte, ret symbols.Addr) {
	t := p.feed
	if s.Stopping || p.removed || !t.enabled(p) {
		return
	}
	if s.Opts.Detach {
		return // recorders take hits only by detours, after the process is left
	}
	s.ctx.Entry = entry
	s.ctx.Time = s.now
	if p.timeSlots() != nil {
		s.ctx.Time = s.tsc
	}
	if on := t.on(); !on && len(p.triggers()) == 0 || t.expired(s.tsc) {
		return
	}
	rec, pass := p.Program.Eval(&s.ctx, s.rec[:0])
	s.rec = rec[:0]
	if !pass {
		if t.on() {
			t.producer.Count(s.ctx.CPU, p.Id, ring.CounterFiltered, 1)
		}
		return
	}
	s.before(p, rec)
	switch {
	case !t.on():
	case !s.records(p.user()):
		t.producer.Count(s.ctx.CPU, p.Id, ring.CounterHits, 1)
	case t.limited(p, s.tsc):
		t.producer.Count(s.ctx.CPU, p.Id, ring.CounterLimited, 1)
	default:
		t.Names.Note(s.ctx.TID, s.ctx.Comm)
		t.put(p, s.withStack(p, rec), ret)
	}
	s.after(p, rec)
}

// miss counts a call for which the probe had no instance (nmissed).
func (s *Engine) miss(p *Placed) {
	if p.removed {
		return
	}
	p.feed.producer.Count(s.ctx.CPU, p.Id, ring.CounterMissed, 1)
}

// hitState is the state of the hit that is being taken.
type hitState struct {
	ctx      fetch.Context
	regs     fetch.Regs
	rec      []byte
	done     []*Instance   // calls that are ending
	now, tsc uint64        // CLOCK_MONOTONIC in ns, and the time stamp counter
	at       *thread       // the thread that the context was filled from
	jumped   bool          // the thread continues where a handler has set it
	accessed feed.Access   // the access of a watchpoint's hit
	watched  fetch.Watched // what is known of the watched memory
	delay    time.Duration // how long the thread stays stopped
	Handling bool          // a handler is running
}
