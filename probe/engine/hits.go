package engine

import (
	"time"

	"kprobe/fetch"
	"kprobe/probe/feed"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// fill makes the session's fetch context that of a stopped thread. From then on
// until the stop is dealt with (handler.stepping) readers know that hits of that
// time may still come.
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
	// Noted before the hit's own time is taken: see ring.Options.Busy. An atomic
	// store is done before what follows it.
	s.busy.Store(s.counter.TSC())
	s.now, s.tsc = s.clock.Now(), s.counter.TSC()
	c.Time = s.now
	c.ReadLink = tg.readLink
	c.Entry, c.Watched = nil, &s.watched
	return nil
}

// record evaluates a probe's program over the session's context and puts the
// hit into the rings. ret is the address returned to (0 at entry).
func (s *Engine) record(p *Placed, entry []byte, ret symbols.Addr) {
	t := p.feed
	if s.Stopping || p.removed || !t.enabled(p) {
		return
	}
	if s.Opts.Detach {
		return // detours take none before they are left, and the rings want stamps
	}
	s.ctx.Entry = entry
	s.ctx.Time = s.now
	if p.timeSlots != nil {
		s.ctx.Time = s.tsc
	}
	if on := t.on(); !on && len(p.triggers) == 0 || t.expired(s.tsc) {
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
	case !s.records(p.user):
		t.producer.Count(s.ctx.CPU, p.Id, ring.CounterHits, 1)
	case t.limited(p, s.tsc):
		t.producer.Count(s.ctx.CPU, p.Id, ring.CounterLimited, 1)
	default:
		t.Names.Note(s.ctx.TID, s.ctx.Comm)
		t.put(p, s.withStack(p, rec), ret)
	}
	s.after(p, rec)
}

// miss counts a hit that the probe could not take: nmissed.
func (s *Engine) miss(p *Placed) {
	if p.removed {
		return
	}
	p.feed.producer.Count(s.ctx.CPU, p.Id, ring.CounterMissed, 1)
}

// hitState is what belongs to the hit that is being evaluated.
type hitState struct {
	ctx      fetch.Context
	regs     fetch.Regs
	rec      []byte
	done     []*Instance
	now, tsc uint64        // CLOCK_MONOTONIC in ns, and the time stamp counter
	at       *thread       // that the context was filled from
	jumped   bool          // a handler has led that thread elsewhere
	accessed feed.Access   // of memory that is watched
	watched  fetch.Watched // what is known of it
	delay    time.Duration // for which that thread is to be kept stopped
	Handling bool          // a handler is running
}
